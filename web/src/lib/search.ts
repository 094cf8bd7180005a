// What is searched for in logs: here, and by lockstepd in those of all ranks.

/** Finds a text, or what a regular expression says, whatever the case; undefined: there is nothing to be found. */
export function searchPattern(text: string, regex: boolean): RegExp | undefined {
  if (!text) return undefined;
  try {
    return new RegExp(regex ? text : text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'), 'gi');
  } catch {
    return undefined;
  }
}

/** The same as lockstepd's RE2 reads it. What is no regular expression here may be one there. */
export const searchQuery = (text: string, regex: boolean): string => `(?i)${searchPattern(text, regex)?.source ?? text}`;
