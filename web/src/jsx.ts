// What the bundler makes of JSX: a call with the children as arguments, which is shorter than the newer form by 1 kB of the
// page. Names that nobody else uses.
export {Fragment as $Fragment, h as $h} from 'preact';
