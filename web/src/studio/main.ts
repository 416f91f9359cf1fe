// The studio's page: one application in the body.
import { mount } from "svelte";
import App from "./App.svelte";
import { speak } from "./languages";
import { studio } from "./studio.svelte";
import "./studio.css";

await speak(studio.language).catch(() => undefined); // without its words the page is English
mount(App, { target: document.body });
