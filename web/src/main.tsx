import './style.css';
import {render} from 'preact';
import type {JSX} from 'preact';
import {Loading} from './ui/basics';
import {Shell} from './ui/shell';
import {place} from './state/router';
import {identity, whoAmI} from './state/session';
import {SignIn} from './pages/signin';
import {Jobs} from './pages/jobs';
import {JobFrame} from './pages/job';
import {Overview} from './pages/overview';
import {Ranks} from './pages/ranks';
import {RankView} from './pages/rank';
import {Logs} from './pages/logs';
import {Events} from './pages/events';
import {Gpus} from './pages/gpus';
import type {JobPageProps} from './pages/job';
import {later} from './ui/later';

const seldom = () => import('./pages/seldom');
const Compare = later<object>(() => seldom().then((pages) => pages.Compare));
const Submit = later<{key?: string}>(() => seldom().then((pages) => pages.Submit));
const Queue = later<object>(() => seldom().then((pages) => pages.Queue));
const Nodes = later<object>(() => seldom().then((pages) => pages.Nodes));
const System = later<object>(() => seldom().then((pages) => pages.System));
const EvidenceView = later<JobPageProps>(() => seldom().then((pages) => pages.EvidenceView));
const Config = later<JobPageProps>(() => seldom().then((pages) => pages.Config));
const Profiles = later<JobPageProps>(() => seldom().then((pages) => pages.Profiles));
const Rendezvous = later<JobPageProps>(() => seldom().then((pages) => pages.Rendezvous));

const kJobPages = {
  '': Overview,
  ranks: (props: JobPageProps) => (props.rest.length ? <RankView {...props} /> : <Ranks {...props} />),
  gpus: Gpus,
  rendezvous: Rendezvous,
  logs: Logs,
  events: Events,
  evidence: EvidenceView,
  profiles: Profiles,
  config: Config,
};

function Body(): JSX.Element {
  const {path} = place.value;
  const [section = 'jobs', id] = path;
  switch (section) {
    case 'jobs': return id ? <JobFrame key={id} pages={kJobPages} /> : <Jobs />;
    case 'queue': return <Queue />;
    case 'nodes': return <Nodes />;
    case 'system': return <System />;
    case 'compare': return <Compare />;
    case 'submit': return <Submit key={place.value.query['from']} />;
    default: return <div class="page empty"><h1 class="empty-title">There is no such page</h1><a class="button" href="#/jobs">All jobs</a></div>;
  }
}

function App(): JSX.Element {
  const who = identity.value;
  if (who === undefined) return <main id="main" class="page"><Loading what="the page" /></main>;
  if (who === null || place.value.path[0] === 'signin') return <SignIn />;
  return <Shell><Body /></Shell>;
}

// A link with a one-time code signs in, whoever was before.
if (place.value.path[0] === 'signin' && place.value.query['code']) identity.value = null;
else void whoAmI();
const page = document.getElementById('page')!;
page.replaceChildren();
render(<App />, page);
