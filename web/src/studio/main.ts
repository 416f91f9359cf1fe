// The studio's page: one application in the body.
import { mount } from "svelte";
import App from "./App.svelte";
import "./studio.css";

mount(App, { target: document.body });
