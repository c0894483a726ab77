import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    dir: "browser",
    include: ["**/*.test.ts"],
    testTimeout: 120_000,
    hookTimeout: 60_000,
    // The files measure times: one after the other.
    fileParallelism: false,
  },
});
