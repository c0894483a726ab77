// The text of the box "Why?", in the words of `equipoise why`.

import type { WhyQuestion } from "../api/types";
import { quote } from "./commands";

export const EXAMPLES = [
  "https://shop.example/cart",
  "tcp 192.0.2.7:4711 198.51.100.1:443",
  "name shop.example AAAA",
  "item images key=cat",
];

/** The question that the text asks, or the reason why it asks none. */
export function question(text: string, from: string): WhyQuestion | string {
  const words = text.trim().split(/\s+/);
  const client = from.trim() ? { from: from.trim() } : {};
  const [first, second, third] = words;
  if (!first) return "type a URL, a connection, a name or an item";
  if (words.length === 1 && first.includes("://")) return { request: { url: first, ...client } };
  if ((first === "tcp" || first === "udp") && words.length === 3) {
    return { flow: { protocol: first, from: second!, to: third! } };
  }
  if (first === "name" && second && words.length <= 3) {
    return { name: { name: second, ...(third ? { type: third.toUpperCase() } : {}), ...client } };
  }
  if (first === "item" && second && third && words.length === 3) return item(second, third);
  return `\`${text.trim()}\` is no subject; accepted, for example: ${EXAMPLES.join(" · ")}`;
}

function item(stream: string, of: string): WhyQuestion | string {
  if (of.startsWith("key=")) return { item: { stream, key: of.slice(4) } };
  const [, name, digits] = /^(number=)?(-?\d+)$/.exec(of) ?? [];
  if (digits === undefined) return `\`${of}\` is neither a slice nor key=TEXT nor number=N`;
  return { item: name ? { stream, number: Number(digits) } : { stream, slice: Number(digits) } };
}

/** The command that asks the same. */
export function whyCommand(text: string, from: string): string {
  const words = text.trim().split(/\s+/).map(quote);
  return ["equipoise why", ...words, ...(from.trim() ? ["--from", quote(from.trim())] : [])].join(" ");
}
