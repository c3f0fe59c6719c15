// What an order's policy lets an agent do in its working directory.
//
// The patterns have the meaning the host gives them: `*` and `?` match `/` too, `**` matches whole
// components, and a path pattern covers everything beneath what it matches. Deny wins over allow,
// and a pattern that cannot be read is an error: a rule that is skipped protects nothing.

import { lstatSync, realpathSync } from 'node:fs';
import { basename, dirname, isAbsolute, join, relative, resolve, sep } from 'node:path';

/** The policy, or the boundary of the workspace, forbids it. */
export class Refused extends Error {}

/** Judges tools and paths. `root` is the directory the agent works in. */
export class Guard {
  #allowed;
  #disallowed;
  #approval;
  #denyRead;
  #denyWrite;

  constructor(root, policy) {
    this.root = realpathSync(root);
    this.#allowed = patterns(policy, 'allowed_tools', globToRegex);
    this.#disallowed = patterns(policy, 'disallowed_tools', globToRegex);
    this.#approval = patterns(policy, 'require_approval_for', globToRegex);
    this.#denyRead = patterns(policy, 'deny_read', pathRegex);
    this.#denyWrite = patterns(policy, 'deny_write', pathRegex);
  }

  /**
   * Refuses a tool that is denied, or that a person would have to approve. An agent that wants to
   * wait for that person asks the host instead, with `ctx.requestPermission`.
   */
  checkTool(name) {
    refuseMatch(this.#disallowed, name, `tool '${name}' is denied by`);
    if (this.#allowed.length > 0 && !this.#allowed.some(({ regex }) => regex.test(name))) {
      throw new Refused(`tool '${name}' matches no pattern of allowed_tools`);
    }
    refuseMatch(this.#approval, name, `tool '${name}' needs approval by`);
  }

  /** The path relative to the root, with every link followed, if it may be read. */
  readable(path) {
    return this.#judge(path, this.#denyRead);
  }

  /** The path relative to the root, with every link followed, if it may be written. */
  writable(path) {
    return this.#judge(path, this.#denyWrite);
  }

  #judge(path, denied) {
    const inside = this.#inside(path);
    refuseMatch(denied, inside, `path '${inside}' is denied by`);
    return inside;
  }

  #inside(path) {
    if (path === '' || path.includes('\0')) throw new Refused(`path '${path}' is not a path`);
    const inside = relative(this.root, followLinks(resolve(this.root, path)));
    if (inside === '' || isAbsolute(inside) || inside.split(sep)[0] === '..') {
      throw new Refused(`path '${path}' is outside the workspace`);
    }
    return inside;
  }
}

/** Like realpath, for a path whose last components need not exist yet. */
function followLinks(path) {
  const missing = [];
  let existing = path;
  while (lstatSync(existing, { throwIfNoEntry: false }) === undefined) {
    missing.unshift(basename(existing));
    existing = dirname(existing);
  }
  try {
    return join(realpathSync(existing), ...missing);
  } catch (error) {
    throw new Refused(`path '${path}' leads nowhere: ${error.code}`);
  }
}

function refuseMatch(rules, name, what) {
  const rule = rules.find(({ regex }) => regex.test(name));
  if (rule !== undefined) throw new Refused(`${what} ${rule.shown}`);
}

function patterns(policy, field, translate) {
  const globs = policy?.[field] ?? [];
  return globs.map((glob, index) => ({
    shown: `${field}[${index}] "${glob}"`,
    regex: new RegExp(`^(?:${translate(glob)})$`, 's'),
  }));
}

/** `./secrets/` is read as `secrets`, and covers what is beneath it. */
function pathRegex(glob) {
  const inside = glob.replace(/^(?:\.?\/)+/, '').replace(/\/+$/, '');
  return `${globToRegex(inside)}|${globToRegex(`${inside}/**`)}`;
}

// Longest first; the ends matter, because `**` is special only as a whole component.
const TOKENS = new RegExp(
  [
    String.raw`(?<any>^\*\*$)|(?<prefix>^(?:\*\*/)+)|(?<middle>/\*\*(?:/\*\*)*/)`,
    String.raw`(?<suffix>(?:/\*\*)+$)|(?<stars>\*+)|(?<one>\?)`,
    String.raw`(?<set>\[[!^]?\]?[^\]]*\])|(?<open>\{)|(?<close>\})|(?<comma>,)`,
    String.raw`\\(?<escaped>.)|(?<plain>[^[\\])`,
  ].join('|'),
  'sy',
);
const WILDCARDS = {
  any: '.*',
  prefix: '(?:.*/)?',
  middle: '/(?:.*/)?',
  suffix: '/.*',
  stars: '.*',
  one: '.',
};

/** The glob as a regular expression for the whole of a name. */
export function globToRegex(glob) {
  let regex = '';
  let depth = 0;
  TOKENS.lastIndex = 0;
  while (TOKENS.lastIndex < glob.length) {
    const { groups } = TOKENS.exec(glob) ?? {};
    if (groups === undefined) throw new Error(`pattern '${glob}' is malformed`);
    const [kind, text] = Object.entries(groups).find(([, found]) => found !== undefined);
    if (kind in WILDCARDS) regex += WILDCARDS[kind];
    else if (kind === 'set') regex += characterClass(text);
    else if (kind === 'open') [depth, regex] = [depth + 1, `${regex}(?:`];
    else if (kind === 'close' && depth > 0) [depth, regex] = [depth - 1, `${regex})`];
    else if (kind === 'comma' && depth > 0) regex += '|';
    else regex += text.replace(/[.*+?^${}()|[\]\\/]/, '\\$&');
  }
  if (depth > 0 || glob === '') throw new Error(`pattern '${glob}' is malformed`);
  return regex;
}

function characterClass(text) {
  const [, negated, characters] = text.match(/^\[([!^]?)(.*)\]$/s);
  return `[${negated ? '^' : ''}${characters.replace(/[\]\\^[]/g, '\\$&')}]`;
}
