// What must not compile: each line but the first three is one mistake, and tests/web/client.test.mjs looks for each.
import createClient from 'openapi-fetch';
import type {components, paths} from './lockstep';
type JobSpec = components['schemas']['JobSpec'];
const client = createClient<paths>();
export const unknownField: JobSpec = {name: 'a', framework: 'native', node: 2}; // wrong
export const unknownFramework: JobSpec = {name: 'a', framework: 'torch'}; // wrong
export const noName: JobSpec = {framework: 'native'}; // wrong
export const textForNumber: JobSpec = {name: 'a', framework: 'native', resources: {nodes: '2'}}; // wrong
export const unknownState = (job: components['schemas']['Job']) => job.state === 'done'; // wrong
export const mayBeAbsent = (job: components['schemas']['Job']): number => job.step; // wrong
export const notOfAnAnswer = (spec: components['schemas']['JobSpecAnswer']) => spec.sweep; // wrong
export const unknownPath = () => client.GET('/v1/job'); // wrong
export const unknownQuery = () => client.GET('/v1/jobs', {params: {query: {status: 'failed'}}}); // wrong
export const noBody = () => client.POST('/v1/jobs'); // wrong
