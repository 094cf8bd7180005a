// Specifications in YAML, as `lockstep submit` reads them. Fetched when somebody writes YAML.
import {parseDocument, stringify, visit, type Node, type Pair} from 'yaml';

// What is text although it may look like a number, as job/cli/document_yaml.cpp has it.
const kTexts = /^\/(name|setup|working_directory|resources\/time_limit|slurm\/(account|partition|qos)|(command|environment|labels|slurm\/directives|recorded_environment)\/[^/]+)$/;

/** The document's value; throws a SyntaxError with the place. */
export function parseYaml(text: string): unknown {
  const document = parseDocument(text, {merge: false, prettyErrors: true});
  const [error] = document.errors;
  if (error) throw new SyntaxError(error.message.split('\n\n')[0]);
  visit(document, {
    Scalar(key, node, path) {
      if (key === 'key' || node.value === null || typeof node.value === 'string' || node.source === undefined) return;
      const parts = path.flatMap((one, i) => {
        const pair = one as Pair<Node>;
        if (pair.key !== undefined) return [String((pair.key as {value?: unknown}).value)];
        const list = (one as {items?: unknown[]}).items;
        const inner = i + 1 < path.length ? path[i + 1] : node;
        return list && typeof key === 'number' && list.includes(inner) && !(inner as {key?: unknown}).key ? [String(list.indexOf(inner))] : [];
      });
      if (kTexts.test(`/${parts.join('/')}`)) node.value = node.source;
    },
  });
  // Aliases may make much of little: as many as a person writes.
  return document.toJS({maxAliasCount: 100});
}

export const formatYaml = (value: unknown): string => stringify(value, {lineWidth: 0});
