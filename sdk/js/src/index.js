export { Agent, Facts, Heardlog } from './client.js';
export { HeardlogError } from './errors.js';
export { Reporter } from './reporter.js';
