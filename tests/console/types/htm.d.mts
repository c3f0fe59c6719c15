// The library as the pages use it: its own declarations are for bundlers.
declare const htm: { bind(h: any): (strings: TemplateStringsArray, ...values: any[]) => any };
export default htm;
