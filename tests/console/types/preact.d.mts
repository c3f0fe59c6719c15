// The library as the pages use it: its own declarations are for bundlers.
export function h(type: any, props: any, ...children: any[]): any;
export function render(element: any, root: Element): void;
export const Fragment: any;
