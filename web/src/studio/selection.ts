// What is chosen on the whole page.
import { Selection } from "../core";

export const selection = new Selection();
