// A page in which packed models answer, without a server.
import { mount } from "svelte";
import "../studio/studio.css";
import Page from "./Page.svelte";
import { Source, type PageData } from "./source";

const source = new Source(JSON.parse(document.getElementById("page")!.textContent!) as PageData);
mount(Page, { target: document.body, props: { source } });
Object.assign(globalThis, { foveate: source }); // for other scripts: foveate.events(model, { text }, signal)
