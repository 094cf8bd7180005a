// Pages that few open, in one file: every file that is split off makes what is left larger.
export {Compare} from './compare';
export {Submit} from './submit';
