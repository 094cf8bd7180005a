import {build, type Plugin} from 'esbuild';
import * as whole from 'js-yaml';
import {mkdtempSync, readFileSync, rmSync, writeFileSync} from 'node:fs';
import {tmpdir} from 'node:os';
import path from 'node:path';
import {pathToFileURL} from 'node:url';
import {afterAll, describe, expect, it} from 'vitest';

const web = path.resolve(__dirname, '..');
const {cuts, lineChartsOnly, yamlEventsOnly, kNotUsed, kAlways, kYamlParts} = (await import(path.join(web, 'cuts.mjs'))) as {
  cuts: Plugin[]; lineChartsOnly: (text: string) => string; yamlEventsOnly: (text: string) => string; kNotUsed: string[][]; kAlways: string[][]; kYamlParts: string[]};
const bundle = async (contents: string, plugins: Plugin[]) =>
  (await build({stdin: {contents, resolveDir: web}, bundle: true, write: false, format: 'esm', minify: true, plugins, logLevel: 'silent'})).outputFiles[0]!.text;
const package_ = (name: string) => readFileSync(path.join(web, 'node_modules', name), 'utf8');

describe('what the bundle leaves out', {timeout: 120_000}, () => {
  const folder = mkdtempSync(path.join(tmpdir(), 'lockstep-web-'));
  afterAll(() => rmSync(folder, {recursive: true}));
  it('finds the parts of any text as the whole of js-yaml does', async () => {
    const file = path.join(folder, 'cut.mjs');
    writeFileSync(file, await bundle("export {EVENT_ID, SCALAR_STYLE, getScalarValue, parseEvents} from 'js-yaml';", [cuts[1]!]));
    expect(readFileSync(file).length).toBeLessThan(package_('js-yaml/dist/js-yaml.mjs').length / 3);
    const part = (await import(/* @vite-ignore */ pathToFileURL(file).href)) as typeof whole;
    expect([part.EVENT_ID, part.SCALAR_STYLE]).toEqual([whole.EVENT_ID, whole.SCALAR_STYLE]);
    const told = (one: typeof whole, text: string) => {
      try {
        return one.parseEvents(text, {maxDepth: 34}).map((event) => (event.type === one.EVENT_ID.SCALAR ? {...event, value: one.getScalarValue(text, event)} : event));
      } catch (error) {
        const {name, reason, mark} = error as {name: string; reason: string; mark: {position: number; line: number; column: number}};
        return [name, reason, mark.position, mark.line, mark.column];
      }
    };
    const shared = JSON.parse(readFileSync(path.join(__dirname, 'yaml_texts.json'), 'utf8')) as Record<'same' | 'refused', {text: string}[]>;
    const texts = [...shared.same, ...shared.refused].map(({text}) => text).concat(
      '%YAML 1.2\n%TAG !e! tag:example.com,2000:\n---\n!e!x &a {a: !!int 1, ? b : c}\n...\n--- # second\n- *a\n', 'a: |2-\n   b\n\n  c\nd: >+\n  e\n\n   f\n  g\n\n# h\n',
      'a: "b\\\n  c\\x41\\u00e9\\U0001F680 \\/"\nd: \'e\'\'f\n\n  g\'\n', '\ufeff? |\n  key\n: - one\n  - two: 3\n    four:\n- 5\n', 'a: b: c\n\td: "\\q"\n', '[a, b: c, {d, e: }, "f":g, ? h]\r\nx\r', 'k: \u0007\n', '&a a: *a\n*a : &a b\n');
    let refused = 0;
    let read = 0;
    // What ends early, or lacks a character, is wrong in many ways.
    for (const text of texts) {
      for (let i = 0; i <= Math.min(text.length, 400); i++) {
        for (const one of [text.slice(0, i), text.slice(0, i) + text.slice(i + 1)]) {
          const expected = told(whole, one);
          expect(told(part, one), JSON.stringify(one)).toEqual(expected);
          if (typeof expected[0] === 'string') refused++;
          else read++;
        }
      }
    }
    expect(refused).toBeGreaterThan(500);
    expect(read).toBeGreaterThan(500);
  });
  it('is in the packages, each part of it', () => {
    const uplot = package_('uplot/dist/uPlot.esm.js');
    expect(lineChartsOnly(uplot).length).toBeLessThan(uplot.length);
    // One is there only when another has gone.
    const there = [...kNotUsed, ...kAlways].filter(([text]) => uplot.includes(text!));
    expect(there.length).toBeGreaterThanOrEqual(kNotUsed.length + kAlways.length - 1);
    for (const [text] of there) expect(() => lineChartsOnly(uplot.replaceAll(text!, '')), text).toThrow(/^no(t once|where): /);
    for (const [text] of kNotUsed) expect(() => lineChartsOnly(uplot + text), text).toThrow('not once: ');
    const yaml = package_('js-yaml/dist/js-yaml.mjs');
    for (const name of kYamlParts) {
      for (const other of [yaml.replace(`//#region ${name}\n`, ''), `${yaml}\n//#region ${name}\n//#endregion\n`]) expect(() => yamlEventsOnly(other)).toThrow(name);
    }
    expect(() => yamlEventsOnly(yaml.replace('mark.snippet = makeSnippet(mark);', ''))).toThrow('excerpt');
    expect(() => yamlEventsOnly(yaml.replace('mark.snippet = makeSnippet(mark);', '$&makeSnippet(mark);'))).toThrow('excerpt');
  });
  it('stops the build where nothing is left out, because a file has another name', async () => {
    const both = "import uPlot from 'uplot'; import {parseEvents} from 'js-yaml'; console.log(uPlot, parseEvents);";
    expect((await bundle(both, cuts)).length).toBeLessThan((await bundle(both, [])).length * 0.7);
    await expect(bundle("import uPlot from 'uplot'; console.log(uPlot);", cuts)).rejects.toThrow(/nothing was cut: .*js-yaml/);
    const renamed: Plugin = {name: 'renamed', setup: (b) => b.onResolve({filter: /^uplot$/}, () => {
      writeFileSync(path.join(folder, 'other.js'), package_('uplot/dist/uPlot.esm.js'));
      return {path: path.join(folder, 'other.js')};
    })};
    await expect(bundle(both, [renamed, ...cuts])).rejects.toThrow(/nothing was cut: .*uPlot/);
  });
});
