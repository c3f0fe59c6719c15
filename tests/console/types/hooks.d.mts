// The library as the pages use it: its own declarations are for bundlers.
export function useState<T>(initial: T | (() => T)): [T, (next: any) => void];
export function useEffect(effect: () => void | (() => void), inputs?: readonly unknown[]): void;
export function useLayoutEffect(effect: () => void | (() => void), inputs?: readonly unknown[]): void;
export function useMemo<T>(make: () => T, inputs: readonly unknown[]): T;
export function useRef<T>(initial: T): { current: T };
export function useCallback<T extends (...args: any[]) => any>(callback: T, inputs: readonly unknown[]): T;
