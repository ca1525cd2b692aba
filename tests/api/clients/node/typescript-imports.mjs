// Lets Node import TypeScript modules as bun does: without their extension. The suite needs version 3 of zod.
import { registerHooks } from "node:module";

registerHooks({
  resolve(specifier, context, next) {
    if (specifier === "zod") return next("zod/v3", context);
    try {
      return next(specifier, context);
    } catch (error) {
      if (!specifier.startsWith(".")) throw error;
      return next(`${specifier}.ts`, context);
    }
  },
});
