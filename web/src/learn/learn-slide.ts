// A training in the studio, which a slide shows at one look; pages have no such slides, and not their style.
import { learn, type Learning } from "./learn";
import style from "./slide.css?inline";

export const learning = (host: HTMLElement, compact: boolean): Learning => learn(host, { compact, style });
