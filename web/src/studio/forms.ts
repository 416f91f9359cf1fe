// Forms from JSON Schemas: how a field is entered, and what is entered as the API wants it. Pure functions.
import type { ViewField } from "./api";
import type { Settings } from "./place";

/** What is needed of a JSON Schema. */
interface Schema { type?: string; enum?: string[]; anyOf?: Schema[]; items?: Schema; minimum?: number; maximum?: number; multipleOf?: number; exclusiveMinimum?: number; default?: unknown }
export type Entry = "switch" | "choice" | "choices" | "lines" | "numbers" | "number" | "text";
const SPLITS = ["train", "valid", "test"];

/** The schema of a field, or of what it is where it is not absent. */
export const schemaOf = ({ form }: ViewField): Schema => {
  const schema = form as Schema;
  return { ...schema, ...schema.anyOf?.find(({ type }) => type !== "null") };
};

/** What may be chosen; nothing where a field is open. */
export const choicesOf = (field: ViewField): readonly string[] => {
  const { enum: own, items } = schemaOf(field);
  return own ?? items?.enum ?? (field.name === "split" ? SPLITS : []);
};

const isNumber = (schema: Schema | undefined) => schema?.type === "integer" || schema?.type === "number";

export function entryOf(field: ViewField): Entry {
  const schema = schemaOf(field), many = schema.type === "array", chosen = choicesOf(field).length > 0;
  if (schema.type === "boolean") return "switch";
  if (many) return chosen ? "choices" : isNumber(schema.items) ? "numbers" : "lines";
  return chosen ? "choice" : isNumber(schema) ? "number" : "text";
}

const JOINTS: Partial<Record<Entry, string>> = { choices: ",", numbers: ", ", lines: "\n" };

/** A value as it is entered, and as an address has it. */
export const entered = (field: ViewField, value: unknown): string =>
  Array.isArray(value) ? value.join(JOINTS[entryOf(field)]) : value === null || value === undefined ? "" : String(value);

/** A field of the settings as it is entered; where it is not among them, its default. */
export const shownOf = (field: ViewField, asked: Settings): string => entered(field, asked[field.name] ?? schemaOf(field).default);

/** The settings after a field was entered; the default is not in them. */
export function changed(field: ViewField, asked: Settings, text: string): Settings {
  const { [field.name]: _, ...others } = asked, kind = entryOf(field), own = entered(field, schemaOf(field).default);
  return text === own || (text.trim() === "" && kind !== "choices") ? others : { ...others, [field.name]: text };
}

/** Settings as the API wants them; anything but a field is left out. */
export function typed(fields: readonly ViewField[], asked: Settings): Record<string, unknown> {
  return Object.fromEntries(fields.filter(({ name }) => asked[name] !== undefined).map((field) => {
    const kind = entryOf(field), text = String(asked[field.name]);
    const parts = text.split(kind === "lines" ? "\n" : /[\s,;]+/).map((part) => part.trim()).filter(Boolean);
    const value = kind === "switch" ? text === "true" : kind === "number" ? Number(text) : kind === "numbers" ? parts.map(Number)
      : kind === "choices" || kind === "lines" ? parts : text;
    return [field.name, value];
  }));
}

/** A word as a shell reads it. */
export const quoted = (text: string) => (/^[\w.:=@%+,/-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

/** A command line with some options. */
export function commandOf(command: string, options: Record<string, unknown>): string {
  const words = Object.entries(options).flatMap(([key, value]) => {
    const option = key.replaceAll("_", "-");
    if (typeof value === "boolean") return [`--${value ? "" : "no-"}${option}`];
    return (Array.isArray(value) ? value : [value]).map((one) => `--${option} ${quoted(String(one))}`);
  });
  return [command, ...words].join(" ");
}
