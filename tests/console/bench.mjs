export const bench = [];
