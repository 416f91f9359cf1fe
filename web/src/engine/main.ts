// The engine in a browser: a packed file, and its answers without a server.
export { Engine, hasSIMD } from "./compiled";
export { PackedModel } from "./model";
export { Tokenizer } from "./tokenizer";
