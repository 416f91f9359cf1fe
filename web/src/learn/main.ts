// The page of published models with a training in it, or of a training alone.
import { mount } from "svelte";
import "../studio/studio.css";
import Page from "../publish/Page.svelte";
import { Source, type PageData } from "../publish/source";
import Cards from "./Cards.svelte";
import Learn from "./Learn.svelte";

const source = new Source(JSON.parse(document.getElementById("page")!.textContent!) as PageData);
mount(Page, { target: document.body, props: { source, extras: { Cards, Learn } } });
Object.assign(globalThis, { foveate: source });
