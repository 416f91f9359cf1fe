// What the three entries use of the core.
export { mount, type Mounted } from "./mount";
export { Selection, type Choice } from "./selection";
export type { Options, Part } from "./stage";
export type * from "./types";
