// Pages that few open, in one file: every file that is split off makes what is left larger.
export {Nodes, Queue, System} from './cluster';
export {Compare} from './compare';
export {Config} from './config';
export {EvidenceView} from './evidence';
export {Profiles} from './profiles';
export {Rendezvous} from './rendezvous';
export {Submit} from './submit';
