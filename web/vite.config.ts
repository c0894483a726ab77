import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vitest/config";
import { libraries } from "./libraries";

// `npm run dev` serves the page with changes at once, and asks the API at this address.
const api = process.env.EQUIPOISE_API ?? "http://127.0.0.1:9909";

export default defineConfig({
  plugins: [svelte(), libraries()],
  server: {
    // The API accepts changes only from a page of its own address.
    proxy: { "^/(v1/|metrics)": { target: api, changeOrigin: true, headers: { origin: api } } },
  },
  build: {
    // Names without hashes: crates/app/api embeds exactly these files.
    rollupOptions: {
      output: {
        entryFileNames: "dashboard.js",
        assetFileNames: "dashboard[extname]",
      },
    },
    modulePreload: false,
    // The folder's .gitignore stays.
    emptyOutDir: false,
  },
  test: { include: ["test/**/*.test.ts"] },
});
