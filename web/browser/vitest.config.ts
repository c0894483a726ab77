import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    dir: "browser",
    include: ["**/*.test.ts"],
    testTimeout: 120_000,
    hookTimeout: 60_000,
    // Of a machine that has other work; vitest prints what was repeated.
    retry: 1,
    // The files measure times: one after the other.
    fileParallelism: false,
  },
});
