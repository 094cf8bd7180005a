// What ranks were doing when the job hung or somebody asked: those at the same place together, laggards first.
import {useSignal} from '@preact/signals';
import type {JSX} from 'preact';
import {count, dateTime, plural, rankRanges, seconds} from '../lib/format';
import type {Evidence, EvidenceRank} from '../types';
import {parameters} from '../state/api';
import {isOver, useAsk} from '../state/data';
import {jobHref} from '../state/router';
import {Card, Code, Empty, More, Safe, Show} from '../ui/basics';
import {Files, FileText} from '../ui/save';
import type {JobPageProps} from './job';

/** What the kernel says of a process, in words. */
const kRanks = 64;
const kStates: Record<string, string> = {R: 'computes', S: 'waits', D: 'waits for a disk or a device', T: 'is stopped', t: 'is stopped by a debugger', Z: 'has ended'};

interface Group {frame: string; behind: boolean; ranks: EvidenceRank[]}

/** Ranks that are at the same place; those behind the others first, then the smallest group: the odd one out. */
export function groupStacks(ranks: EvidenceRank[]): Group[] {
  const groups = new Map<string, Group>();
  // lockstepd says who was behind when it asked; whoever has come to the newest step by the time of the look is not.
  const newest = Math.max(...ranks.map((one) => one.step ?? -1));
  for (const one of ranks) {
    const rank = {...one, behind: one.behind && (one.step ?? -1) < newest};
    const frame = rank.frame ?? (rank.wchan ? `in the kernel: ${rank.wchan}` : 'its place is not known');
    const key = `${rank.behind} ${frame}`;
    const group = groups.get(key) ?? {frame, behind: rank.behind, ranks: []};
    group.ranks.push(rank);
    groups.set(key, group);
  }
  return [...groups.values()].sort((a, b) => Number(b.behind) - Number(a.behind) || a.ranks.length - b.ranks.length);
}

function Stacks({job, look, group, odd}: {job: JobPageProps['job']; look: Evidence; group: Group; odd: boolean}): JSX.Element {
  const chosen = useSignal<{rank: number; name: string} | undefined>(undefined);
  const path = (rank: number) => (name: string) => (offset: number) => `v1/jobs/${job.id}/evidence/${encodeURIComponent(name)}${parameters({attempt: look.attempt, generation: look.generation, rank, offset})}`;
  const open = chosen.value;
  const file = open && group.ranks.find((one) => one.rank === open.rank)?.files.find((one) => one.name === open.name);
  const nodes = new Set(group.ranks.map((one) => one.node));
  return <li class={`stack ${group.behind || odd ? 'stack-behind' : ''}`}>
    <div class="row"><b>{plural(group.ranks.length, 'rank')}</b><span class="chip">{rankRanges(group.ranks.map((one) => one.rank)).slice(0, 80)}</span><span class="quiet">on {nodes.size === 1 ? <bdi>{[...nodes][0]}</bdi> : plural(nodes.size, 'node')}</span>{group.behind ? <span class="chip chip-bad">behind the others</span> : odd && <span class="chip chip-warn">the odd one out</span>}
      <span class="quiet">{group.ranks[0]!.step !== undefined && `step ${count(group.ranks[0]!.step)}`}{group.ranks[0]!.state && ` · ${kStates[group.ranks[0]!.state!] ?? `state ${group.ranks[0]!.state}`}`}</span></div>
    <code class="frame"><Safe text={group.frame} most={400} /></code>
    <details><summary>Ranks and files</summary><ul class="plain">{group.ranks.slice(0, kRanks).map((one) => <li key={one.rank}><a href={jobHref(job.id, `ranks/${one.rank}`)}>rank {one.rank}</a> <span class="quiet"><bdi>{one.node}</bdi> pid {one.pid} {one.wchan && <bdi>{one.wchan}</bdi>}</span> <Files files={one.files} rank={one.rank} path={path(one.rank)} shown={open?.rank === one.rank ? open.name : undefined} show={({name}) => { chosen.value = {rank: one.rank, name}; }} />{one.missing.map((what) => <span key={what.what} class="quiet" title={what.why}> no <Safe text={what.what} />: <Safe text={what.why} most={100} /></span>)}</li>)}</ul><More of={group.ranks.length} most={kRanks} what="rank" />
      {open && file && <FileText key={`${open.rank} ${open.name}`} path={path(open.rank)(open.name)} of={look.time} file={file}>{(text) => <Code label={`${open.name} of rank ${open.rank}`} text={text} />}</FileText>}</details></li>;
}

export function EvidenceView({job}: JobPageProps): JSX.Element {
  const {state, again} = useAsk<{items: Evidence[]}>(`v1/jobs/${job.id}/evidence`, isOver(job) ? undefined : 4);
  return <Show asked={state.value} what="evidence" again={again}>{({items}) => (items.length === 0
    ? <Empty title="Nobody has looked at the ranks">Stacks and states are taken by themselves when the job hangs{!isOver(job) && ', and when you press Evidence above'}.</Empty>
    : <>{items.map((look) => <Card key={`${look.attempt} ${look.generation}`} title={`Generation ${look.generation}${look.attempt > 1 ? ` of attempt ${look.attempt}` : ''}`} aside={<span class="quiet">{dateTime(seconds(look.time))} · <Safe text={look.reason} />{look.step !== undefined && ` · step ${count(look.step)}`}</span>}>
      <p><Safe text={look.message.replace(/^had: /, 'Taken: ')} most={600} /></p><ul class="stacks">{groupStacks(look.ranks).map((group, i) => <Stacks key={i} job={job} look={look} group={group} odd={i === 0 && group.ranks.length * 3 <= look.ranks.length} />)}</ul></Card>)}</>)}</Show>;
}
