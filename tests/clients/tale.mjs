// The document that structured output is asked for as.

import { z } from 'zod';

export const Tale = z.strictObject({
  title: z.string(),
  people: z.array(z.strictObject({ name: z.string(), age: z.int() })),
  rating: z.number(),
  year: z.int(),
  pages: z.int(),
  truth: z.boolean().nullable(),
});
