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

const kJobPages = {
  '': Overview,
};

function Body(): JSX.Element {
  const {path} = place.value;
  const [section = 'jobs', id] = path;
  switch (section) {
    case 'jobs': return id ? <JobFrame key={id} pages={kJobPages} /> : <Jobs />;
    default: return <div class="page"><p>There is no such page. <a href="#/jobs">Jobs</a></p></div>;
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
render(<App />, document.getElementById('page')!);
