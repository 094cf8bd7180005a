import {describe as suite, expect, it} from 'vitest';
import {anomaliesOf, causeLine, describe, inTrouble, kMostEvents, lastFrames, lossBroke, marksOf, newestEvents, phasesOf, ranksOf, repeatedText, stateOf, withNew} from '../src/lib/story';
import {diffJson, joinCommand, parseDocument, splitCommand, valueAt, withValue, withoutMasked} from '../src/lib/spec';
import {timeOfDay} from '../src/lib/format';
import {MessageReader} from '../src/lib/sse';
import type {Job, JobEvent, Page} from '../src/types';

const at = (s: number) => new Date(1.7e12 + s * 1000).toISOString();
const job = {
  id: 'ls-0', name: 'x', user: 'u', framework: 'pytorch', state: 'succeeded', labels: {}, resources: {}, submitted_at: at(0), started_at: at(3), finished_at: at(60),
  attempts: [{number: 1, state: 'succeeded', nodes: ['n0'], created_at: at(0), started_at: at(2), finished_at: at(60), generations: [
    {number: 1, started_at: at(3), running_at: at(4), finished_at: at(20), step: 130, cause: {class: 'rank_exit', message: 'rank 1 failed', rank: 1}},
    {number: 2, started_at: at(21), running_at: at(22), finished_at: at(60), resumed_from_step: 100, step: 500}]}],
} as unknown as Job;

suite('story', () => {
  it('a job that goes on with fewer nodes has their ranks, and one that grows has not failed', () => {
    const attempt = job.attempts![0]!;
    const small = {...attempt.generations[1]!, nodes: 2, world_size: 4, message: 'goes on with 2 of 3 nodes: n1 is lost', cause: {class: 'node_returned', message: 'n1 is there'}};
    const elastic = {...job, resources: {nodes: 3, ranks_per_node: 2}, attempts: [{...attempt, generations: [attempt.generations[0]!, small]}]} as unknown as Job;
    expect(ranksOf(elastic)).toBe(4);
    expect(ranksOf({...elastic, attempts: []} as Job)).toBe(6);
    expect(marksOf(elastic, []).filter((mark) => mark.kind === 'failure').length).toBe(1);
    const began = {seq: 1, time: at(1), kind: 'generation_started', generation: 2, data: {resumed_from_step: 100, message: small.message}} as JobEvent;
    expect(describe(began).text).toBe('Generation 2 is made up, from step 100: goes on with 2 of 3 nodes: n1 is lost');
    const grows = {seq: 2, time: at(2), kind: 'restart_requested', generation: 2, data: {by: 'lockstep', reason: 'n1 is there: …'}} as JobEvent;
    expect(describe(grows).text).toBe('n1 is there: …');
  });
  it('a restart that somebody asked for is no failure, and says who asked when', () => {
    const [first, second] = job.attempts![0]!.generations;
    const asked = {...job, attempts: [{...job.attempts![0]!, generations: [{...first!, cause: {class: 'restart_requested', message: 'restart asked for by ada'}}, second!]}]} as Job;
    expect(marksOf(asked, [])).toMatchObject([{kind: 'restart', step: 100, asked: true, label: `Generation 2 starts from step 100: restart asked for by ada at ${timeOfDay(1.7e9 + 20)}`}]);
    expect(marksOf(job, []).map(({kind, asked}) => [kind, asked])).toEqual([['failure', undefined], ['restart', false]]);
    const weight = (kind: string, data: object) => describe({seq: 1, time: at(1), kind, attempt: 1, generation: 2, data} as JobEvent).weight;
    for (const kind of ['generation_ended', 'attempt_ended']) {
      expect(weight(kind, {cause: {class: 'restart_requested', message: 'restart asked for by ada'}})).toBe('plain');
      expect(weight(kind, {cause: {class: 'cancelled_by_user', message: 'cancelled by ada'}})).toBe('plain');
      expect(weight(kind, {cause: {class: 'rank_exit', message: 'rank 1 failed'}})).toBe('bad');
    }
    expect([weight('restart_requested', {by: 'ada'}), weight('generation_started', {resumed_from_step: 9}), weight('generation_started', {message: 'goes on with 2 of 3 nodes'})]).toEqual(['plain', 'plain', 'warn']);
  });
  it('steps were made twice once they have been, not before', () => {
    const after = (...steps: [number, number?][]) => repeatedText({...job, attempts: [{...job.attempts![0]!, generations: steps.map(([step, lost_steps], i) => ({number: i + 1, step, lost_steps}))}]} as unknown as Job);
    expect(after([130])).toBe('');
    expect(after([130, 0], [140])).toBe('');
    expect(after([130, 30], [-1])).toBe('30 steps lost');
    expect(after([130, 30], [100])).toBe('30 steps lost');
    expect(after([130, 30], [110])).toBe('10 of 30 lost steps made again');
    expect(after([130, 30], [130])).toBe('30 steps were made twice');
    expect(after([130, 1], [500])).toBe('1 step was made twice');
    expect(after([130, 30], [110, 10], [120])).toBe('30 of 40 lost steps made again');
    expect(after([130, 30], [110, 10], [140])).toBe('40 steps were made twice');
  });
  it('says how many of the ranks that were started were warm standbys', () => {
    const started = (data: object) => describe({seq: 1, time: at(1), kind: 'ranks_started', generation: 2, data} as JobEvent).text;
    expect(started({})).toBe('Every rank runs');
    expect(started({warm: 0})).toBe('Every rank runs');
    expect(started({warm: 1})).toBe('Every rank runs; 1 was a warm standby');
    expect(started({warm: 32})).toBe('Every rank runs; 32 were warm standbys');
  });
  it('a job that hangs is not said to run, one that is over not to hang', () => {
    expect(stateOf({...job, state: 'running', hang: {}} as Job)).toBe('hang');
    expect(stateOf({...job, state: 'failed', hang: {}} as Job)).toBe('failed');
  });
  it('many jobs that failed do not push out one that runs and is slow, or hangs', () => {
    const one = (name: string, more: Partial<Job>) => ({...job, name, finished_at: undefined, ...more}) as Job;
    const failed = Array.from({length: 9}, (_, i) => one(`failed${i}`, {state: 'failed', finished_at: at(60)}));
    const jobs = [...failed, one('slow', {state: 'running', anomalies: {straggler: 1}}), one('well', {state: 'running', anomalies: {}}), one('over', {state: 'succeeded', anomalies: {straggler: 1}}),
      one('hangs', {state: 'running', hang: {}}), one('long ago', {state: 'failed', finished_at: at(-90_000)})];
    expect(inTrouble(jobs, 1.7e9 + 70).map((found) => found.name)).toEqual(['hangs', 'slow', ...failed.map((found) => found.name)]);
  });
  it('an anomaly that is over is not to be looked at, nor is one that the banner tells of', () => {
    const events = [{seq: 1, time: at(1), kind: 'anomaly', rank: 1, data: {anomaly: 'straggler'}}, {seq: 2, time: at(2), kind: 'anomaly', rank: 2, data: {anomaly: 'straggler'}},
      {seq: 3, time: at(3), kind: 'anomaly', rank: 1, data: {anomaly: 'straggler', over: true}}, {seq: 4, time: at(4), kind: 'anomaly', rank: 3, data: {anomaly: 'hang'}}] as JobEvent[];
    const seen = (one: Partial<Job>) => anomaliesOf(events, {...job, ...one} as Job).map((event) => event.seq);
    expect(seen({state: 'running', hang: {}})).toEqual([2]);
    expect(seen({state: 'running'})).toEqual([4, 2]);
    expect(seen({state: 'failed', hang: {}})).toEqual([4, 2]);
  });
  it('another metric that is infinite is no loss that is no number', () => {
    const seen = (anomaly: string, message: string) => ({seq: 1, time: at(5), kind: 'anomaly', rank: 1, data: {anomaly, message}}) as JobEvent;
    expect(lossBroke(undefined)).toBe(false);
    expect(lossBroke([seen('nonfinite', 'grad_norm is inf'), seen('nonfinite', 'val_loss is nan'), seen('loss_spike', 'loss is 9.5 at step 3')])).toBe(false);
    expect(lossBroke([seen('nonfinite', 'grad_norm is inf'), seen('nonfinite', 'loss is nan'), seen('nonfinite', 'lr is nan')])).toBe(true);
  });
  it('phases follow each other without a hole, from the submission to the end', () => {
    const phases = phasesOf(job, 0);
    expect(phases.map((p) => p.kind)).toEqual(['queue', 'launch', 'rendezvous', 'run', 'between', 'rendezvous', 'run']);
    expect(phases[0]!.from).toBe(1.7e9);
    for (let i = 1; i < phases.length; i++) expect(phases[i]!.from).toBe(phases[i - 1]!.to);
    expect(phases[phases.length - 1]!.to).toBe(1.7e9 + 60);
  });
  it('a job that waits has one phase that is open', () => {
    const phases = phasesOf({...job, state: 'queued', finished_at: undefined, attempts: [{number: 1, state: 'queued', nodes: [], generations: [], created_at: at(0)}]} as unknown as Job, 1.7e9 + 9);
    expect(phases).toMatchObject([{kind: 'queue', open: true, to: 1.7e9 + 9}]);
  });
  it('a job that hangs runs until it does', () => {
    const {attempts} = job;
    const hanging = {...job, state: 'running', finished_at: undefined, hang: {since: at(40)}, attempts: [{...attempts![0]!, finished_at: undefined, generations: [attempts![0]!.generations[0]!, {...attempts![0]!.generations[1]!, finished_at: undefined}]}]} as unknown as Job;
    expect(phasesOf(hanging, 1.7e9 + 70).slice(-2)).toMatchObject([{kind: 'run', to: 1.7e9 + 40, open: false}, {kind: 'stalled', to: 1.7e9 + 70, open: true}]);
  });
  it('marks restarts, failures, checkpoints and anomalies', () => {
    const events = [{seq: 1, time: at(9), kind: 'checkpoint_saved', data: {step: 100}}, {seq: 2, time: at(10), kind: 'anomaly', rank: 5, data: {anomaly: 'straggler', step: 90, message: 'slow'}},
      {seq: 3, time: at(11), kind: 'anomaly', data: {anomaly: 'hang', over: true}}] as JobEvent[];
    expect(marksOf(job, events).map((mark) => [mark.kind, mark.step])).toEqual([['checkpoint', 100], ['anomaly', 90], ['failure', 130], ['restart', 100]]);
  });
  it('an attempt that ended well is no bad news', () => {
    expect(describe({seq: 1, time: at(1), kind: 'attempt_ended', attempt: 1, data: {cause: {class: 'none', message: ''}}})).toEqual({text: 'Attempt 1 is over', weight: 'plain'});
    expect(describe({seq: 1, time: at(1), kind: 'rank_exited', rank: 2, node: 'n1', data: {exit_code: 1, signal: 0, error_type: 'KeyError', error: "'x'"}}).text).toBe("rank 2 on n1 failed with exit code 1: KeyError: 'x'");
    expect(describe({seq: 1, time: at(1), kind: 'something_new', data: {message: 'hello'}}).text).toBe('something new: hello');
  });
  it('of more events than are kept the newest are there, the failure among them', async () => {
    const last = kMostEvents + 2500;
    let asked = 0;
    const pages = async (before = String(last + 1)): Promise<Page<JobEvent>> => {
      asked++;
      const items = Array.from({length: Math.min(1000, Number(before) - 1)}, (_, i): JobEvent => ({seq: Number(before) - 1 - i, time: at(0), kind: 'rank_exited'}));
      const end = items[items.length - 1]!.seq;
      return {items, next_cursor: end > 1 ? String(end) : undefined};
    };
    const all = await newestEvents(pages);
    expect(asked).toBe(kMostEvents / 1000);
    expect([all.length, all[0]!.seq, all[all.length - 1]!.seq]).toEqual([kMostEvents, 2501, last]);
  });
  it('events that come while older ones are read are not lost, and none is there twice', async () => {
    const event = (seq: number): JobEvent => ({seq, time: at(seq), kind: 'rank_exited'});
    const came: JobEvent[] = [];
    const read = await newestEvents(async (before) => {
      came.push(event(came.length + 5));  // the first is on the page, too
      return before ? {items: [event(2), event(1)]} : {items: [event(5), event(4), event(3)], next_cursor: '3'};
    });
    came.push(event(9), event(9), event(8));
    expect(withNew(read, came).map((one) => one.seq)).toEqual([1, 2, 3, 4, 5, 6, 8, 9]);
    expect(withNew(read, [event(5)])).toBe(read);
    const many = Array.from({length: kMostEvents}, (_, i) => event(i + 1));
    expect(withNew(many, [event(kMostEvents + 1)])).toHaveLength(kMostEvents);
    expect(withNew(many, [event(kMostEvents + 1)]).at(-1)!.seq).toBe(kMostEvents + 1);
  });
  it('the cause is its exception, the traceback its end', () => {
    expect(causeLine({class: 'rank_exit', message: 'm', rank: 0, exception: {type: 'ValueError', message: 'no'}})).toBe('ValueError: no');
    expect(causeLine({class: 'rank_exit', message: 'the first cause is not known. The earliest: rank 0 raised E', exception: {type: 'E', message: ''}})).toMatch('not known');
    expect(causeLine({class: 'rank_signal', message: 'rank 1 on vm-n1 was ended by SIGKILL', rank: 1, node: 'vm-n1'})).toBe('was ended by SIGKILL');
    expect(lastFrames('a\nb\nc\n', 2)).toEqual({head: 'a', tail: 'b\nc'});
  });
});

suite('specifications', () => {
  it('what is different, leaf by leaf', () => {
    expect(diffJson({a: 1, b: {c: [1]}, e: {}}, {a: 2, b: {c: [1], d: 'x'}})).toEqual([{path: 'a', a: '1', b: '2'}, {path: 'b.d', a: undefined, b: 'x'}]);
  });
  it('a value goes in and out; empty groups go with it', () => {
    const with_ = withValue({name: 'x'}, ['recovery', 'max_restarts'], 2);
    expect(with_).toEqual({name: 'x', recovery: {max_restarts: 2}});
    expect(valueAt(with_, ['recovery', 'max_restarts'])).toBe(2);
    expect(withValue(with_, ['recovery', 'max_restarts'], undefined)).toEqual({name: 'x'});
  });
  it('commands as a shell splits them', () => {
    expect(splitCommand(`python3 "my train.py" --x='a b' c\\ d ''`)).toEqual(['python3', 'my train.py', '--x=a b', 'c d', '']);
    // python -c "print('a\\n')" became print('an').
    expect(splitCommand(String.raw`python -c "print('a\n')" "\$HOME \"x\" \\ \w \`" '\n'`)).toEqual(['python', '-c', String.raw`print('a\n')`, String.raw`$HOME "x" \ \w ` + '`', '\\n']);
    expect(splitCommand('"a\\\nb" \\\n "c\\')).toEqual(['ab', 'c\\']);
    for (const argv of [['a', "it's", ''], ['--lr', '0.1', 'x y']]) expect(splitCommand(joinCommand(argv))).toEqual(argv);
  });
  it('what another was not shown is left out and named, not submitted as ***', () => {
    const spec = {name: 'x', environment: {KEY: '***', DEPTH: '3'}, inherit_environment: true, recorded_environment: {HOME: '***'}};
    expect(withoutMasked(spec)).toEqual({spec: {name: 'x', environment: {DEPTH: '3'}}, masked: ['KEY', 'HOME']});
    const own = {name: 'x', environment: {KEY: 'a'}, inherit_environment: true, recorded_environment: {HOME: '/'}};
    expect(withoutMasked(own)).toEqual({spec: own, masked: []});
    expect(withoutMasked({name: 'x'}).masked).toEqual([]);
    expect(withoutMasked({notify: ['webhook:https://h/***', 'mail']})).toEqual({spec: {notify: ['mail']}, masked: ['notify']});
    expect(withoutMasked({notify: ['webhook:https://h/***']})).toEqual({spec: {}, masked: ['notify']});
  });
  it('comments are allowed, also beside URLs', () => {
    expect(parseDocument('{"a": "http://x", // why\n /* not */ "b": 1}')).toEqual({a: 'http://x', b: 1});
  });
  it('a field that is there twice is refused as lockstepd refuses it, not left out', () => {
    for (const twice of ['{"environment": {"A": "1"}, "environment": {}}', '[1, {"a": {"environment": 1, "b": [{"environment": 1}], "environment" : 2}}]', '{"environment": 1, // "x":\n"\\u0065nvironment": 1}']) {
      expect(() => parseDocument(twice), twice).toThrow(new SyntaxError('the key "environment" appears twice'));
    }
    expect(() => parseDocument(`{"${'k'.repeat(70)}": 1, "${'k'.repeat(70)}": 2}`)).toThrow(`the key "${'k'.repeat(64)}" appears twice`);
    const fine = {a: {a: {b: 1}, b: 'a'}, b: [{a: 1}, {a: '"a": {'}, 'a', 'a'], 'c"': '}', '__proto__ ': 1, '{': 2};
    expect(parseDocument(JSON.stringify(fine))).toEqual(fine);
  });
  it('whole numbers that this language cannot hold are refused, not rounded', () => {
    for (const number of ['9007199254740992', '-12345678901234567890']) expect(() => parseDocument(`{"a": [1, ${number}]}`)).toThrow(`${number}: whole numbers go to 2^53 - 1`);
    expect(parseDocument('{"a": 9007199254740991, "b": 1.12345678901234567, "c": 12345678901234567.0, "d": 12345678901234567e1, "e": "12345678901234567"} // 12345678901234567')).toEqual(
      {a: 9007199254740991, b: 1.1234567890123457, c: 12345678901234568, d: 123456789012345670, e: '12345678901234567'});
  });
});

suite('server-sent events', () => {
  it('come whole over any cut, with the newest id', () => {
    const text = 'retry: 2000\nid: 5\n\nid: 6\nevent: finished\ndata: {"a":\ndata: 1}\n\n: still here\n\nevent: ranks\ndata: x\n\n';
    for (let cut = 1; cut < text.length; cut += 3) {
      const reader = new MessageReader();
      const all = [...reader.push(text.slice(0, cut)), ...reader.push(text.slice(cut))];
      expect(all).toEqual([{id: '6', event: 'finished', data: '{"a":\n1}'}, {id: undefined, event: 'ranks', data: 'x'}]);
      expect([reader.lastId, reader.retry]).toEqual(['6', 2000]);
    }
  });
});
