import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Plugin } from "vite";

/** A library that is part of the page's program. */
interface Library {
  name: string;
  version: string;
  license: string;
  /** SHA-512 of its package, in hexadecimal. */
  sha512: string;
  /** The text of its licence. */
  text: string;
}

/** Writes the libraries with code in the program to `libraries.json`: packages name them. */
export function libraries(): Plugin {
  return {
    name: "libraries",
    generateBundle(_, bundle) {
      const folders = new Set<string>();
      for (const chunk of Object.values(bundle)) {
        const modules = chunk.type === "chunk" ? Object.entries(chunk.modules) : [];
        for (const [id, { renderedLength }] of modules) {
          const folder = /^\0?(.*\/node_modules\/(?:@[^/]+\/)?[^/]+)\//.exec(id)?.[1];
          if (folder && renderedLength > 0) folders.add(folder);
        }
      }
      const lock = JSON.parse(readFileSync("package-lock.json", "utf8")) as Lock;
      const found = [...folders].sort().map((folder) => library(folder, lock));
      const source = JSON.stringify(found, null, 1);
      this.emitFile({ type: "asset", fileName: "libraries.json", source });
    },
  };
}

interface Lock {
  packages: Record<string, { integrity?: string }>;
}

function library(folder: string, lock: Lock): Library {
  const about = JSON.parse(readFileSync(join(folder, "package.json"), "utf8")) as Library;
  const file = readdirSync(folder).find((name) => /^licen[cs]e/i.test(name));
  const path = folder.slice(folder.indexOf("node_modules/"));
  const integrity = lock.packages[path]?.integrity?.replace(/^sha512-/, "");
  if (!file || !integrity || !about.license) {
    throw new Error(`${path} has no licence, no text of one, or no hash in package-lock.json`);
  }
  return {
    name: about.name,
    version: about.version,
    license: about.license,
    sha512: Buffer.from(integrity, "base64").toString("hex"),
    text: readFileSync(join(folder, file), "utf8").trim(),
  };
}
