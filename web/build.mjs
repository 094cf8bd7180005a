// Bundles the page: `node build.mjs --outdir DIR [--watch] [--quick]` writes DIR/index.html and DIR/assets/<name>-<hash>.<ext>,
// each with a .gz beside it. Every URL is relative, so that the page works below a path prefix. --quick leaves out what makes
// the page a tenth smaller and takes nearly all of the time: for the quick start.
import {build, context} from 'esbuild';
import {createHash} from 'node:crypto';
import {mkdir, readFile, readdir, rm, writeFile} from 'node:fs/promises';
import path from 'node:path';
import {fileURLToPath} from 'node:url';
import {parseArgs} from 'node:util';
import {gzipSync} from 'node:zlib';

const here = path.dirname(fileURLToPath(import.meta.url));
const {values} = parseArgs({options: {outdir: {type: 'string', default: 'dist'}, watch: {type: 'boolean', default: false}, quick: {type: 'boolean', default: false}}});
const outdir = path.resolve(values.outdir);

// Ordinary gzip, 4 % smaller than gzip -9.
async function zopfli(bytes) {
  const {default: packer} = await import('@gfx/zopfli');
  return packer.gzipAsync(bytes, {numiterations: 15});
}

// Returns the size.
async function writeBoth(file, bytes) {
  const packed = values.quick ? gzipSync(bytes, {level: 9}) : await zopfli(bytes);
  await writeFile(file, bytes);
  await writeFile(`${file}.gz`, packed);
  return packed.length;
}

// Terser takes another 4 % off what esbuild has made.
async function smaller(file) {
  if (values.quick) {
    return readFile(file);
  }
  const {minify} = await import('terser');
  const {code} = await minify(await readFile(file, 'utf8'), {module: true, ecma: 2022, compress: {passes: 4}});
  return Buffer.from(code);
}

// What esbuild has written becomes what lockstepd serves: index.html names the hashed files.
async function finish(result) {
  const outputs = Object.entries(result.metafile.outputs);
  const entry = outputs.find(([, output]) => output.entryPoint === 'src/main.tsx');
  const icon = await readFile(path.join(here, 'src/icon.svg'));
  const iconName = `icon-${createHash('sha256').update(icon).digest('hex').slice(0, 8)}.svg`;
  await writeFile(path.join(outdir, 'assets', iconName), icon);
  // By itself, so that it waits for nothing.
  const [{contents: early}] = (await build({...options, plugins: [], entryPoints: ['src/early.ts'], splitting: false, format: 'iife', inject: [], metafile: false, write: false})).outputFiles;
  const earlyName = `early-${createHash('sha256').update(early).digest('hex').slice(0, 8)}.js`;
  await writeFile(path.join(outdir, 'assets', earlyName), early);
  const relative = (name) => path.relative(outdir, path.resolve(here, name)).split(path.sep).join('/');
  const page = (await readFile(path.join(here, 'src/index.html'), 'utf8'))
    .replace('{sure}', `assets/${earlyName}`)
    .replace('{script}', relative(entry[0]))
    .replace('{early}', entry[1].imports.filter((one) => one.kind === 'import-statement').map((one) => `<link rel="modulepreload" href="${relative(one.path)}">`).join(''))
    .replace('{style}', relative(entry[1].cssBundle))
    .replace('{icon}', `assets/${iconName}`);
  let total = await writeBoth(path.join(outdir, 'index.html'), Buffer.from(page));
  const wanted = new Set([iconName, earlyName, ...outputs.map(([name]) => path.basename(name))]);
  for (const name of await readdir(path.join(outdir, 'assets'))) {
    const file = path.join(outdir, 'assets', name);
    if (!wanted.has(name)) {
      await rm(file);  // of a build before, or a .gz that is written anew below
    }
  }
  for (const name of wanted) {
    const file = path.join(outdir, 'assets', name);
    total += await writeBoth(file, name.endsWith('.js') ? await smaller(file) : await readFile(file));
  }
  console.log(`web: ${wanted.size + 1} files, ${(total / 1000).toFixed(1)} kB gzip`);
}

// uPlot hangs its bars, steps, splines and its join on itself, so that no bundler can leave them out; and every chart could
// have dates by template, asinh scales, times in milliseconds, a legend or pairs of x and y. The page draws lines and writes
// its own times and readouts; without the names the functions go. A uPlot that does not read like this stops the build.
const kNotUsed = [['uPlot.join = join;'], ['(paths.stepped = stepped);'], ['(paths.bars    = bars);'], ['(paths.spline  = monotoneCubic);'],
  ['uPlot.fmtDate = fmtDate;'], ['uPlot.tzDate  = tzDate;'], ['const localTz = new Intl.DateTimeFormat().resolvedOptions().timeZone;'], ['genIncrs(2, -53, 53, [1]);'],
  ['const _fmtDate = (opts.fmtDate || fmtDate);'], ['const _timeAxisVals   = timeAxisVals(_tzDate, timeAxisStamps((ms == 1 ? _timeAxisStampsMs : _timeAxisStampsS), _fmtDate));'],
  ['const _timeSeriesVal  = timeSeriesVal(_tzDate, timeSeriesStamp(_timeSeriesStamp, _fmtDate));'],
  ['isTime ? (isStr(sv) ? timeSeriesVal(_tzDate, timeSeriesStamp(sv, _fmtDate)) : sv || _timeSeriesVal) : sv', 'sv'],
  ['timeAxisVals(_tzDate, timeAxisStamps(av, _fmtDate))', 'av'], ['timeAxisVal(_tzDate, av)', 'av'], ['av || _timeAxisVals', 'av'],
  ['const [ timeIncrsMs, _timeAxisStampsMs, timeAxisSplitsMs ] = genTimeStuffs(1);'], ['\t\t_timeAxisStamps,\n'], ['_timeAxisStampsS,'],
  ['(ms == 1 ? timeAxisSplitsMs(_tzDate) : timeAxisSplitsS(_tzDate))', 'timeAxisSplitsS(_tzDate)'], ['(ms == 1 ? timeIncrsMs : timeIncrsS)', 'timeIncrsS'],
  ['uPlot.rangeAsinh = rangeAsinh;'], ['sc.distr == 4 ? asinhAxisSplits : '], ['sc.distr == 4   ? val => asinh(val, sc.asinh) :'], ['sc.distr == 4 ? snapAsinhX : '],
  ['sc.distr == 4 ? snapAsinhY : '], ['_min, _max] = rangeAsinh(_min, _min, scaleX.log, false)', '_min, _max] = [_min, _max]'],
  ['const showLegend = legend.show;'], ['if (legend.show && legend.live && shouldSetLegend)', 'if (false)'], ['const showCursor =                cursor.show;'],
  ['mode: ifNull(opts.mode, 1),', 'mode: 1,'], ['\tconst mode = self.mode;', 'const mode = 1;'], ['const mode = u.mode;', 'const mode = 1;'], ['let mode = self.mode;', 'const mode = 1;'],
  ['const ms = opts.ms || 1e-3;', 'const ms = 1e-3;'], ['distr == 4 ? asinh(sc.min, sc.asinh) : '], ['distr == 4 ? asinh(sc.max, sc.asinh) : '], ['distr == 4 ? sinh(sv, sc.asinh) :'],
  ["(opts.padding || [autoPadSide,autoPadSide,autoPadSide,autoPadSide]).map(p => fnOrSelf(ifNull(p, autoPadSide)))", 'opts.padding.map(p => () => p)'],
  ['let rangeIsArr = isArr(rn);', 'const rangeIsArr = false;'], ['if (rangeIsArr && (rn[0] == null || rn[1] == null)) {', 'if (false) {'], ['rangeIsArr = false;\n\t\t\t\t\t}', '}'],
  ['!rangeIsArr && isObj(rn)', 'false'], ['(sc.distr == 3 ? snapLogY : snapNumY)', 'snapLogY'], ['[_min, _max] = rangeNum(_min, _max, rangePad, true);', ';'], ['_max = _min + round(86400 / ms);', ';'],
  ['sc.distr >= 3 && sc.log == 10 ? log10AxisValsFilt : sc.distr == 3 && sc.log == 2 ? log2AxisValsFilt : retArg1', 'sc.distr == 3 ? log10AxisValsFilt : retArg1'],
  ['const cursorFocus = focus.prox >= 0;'], ['const cursorOnePt = cursorFocus && points.one;'], ['let withProx = _prox >= 0 && _prox < inf;'], ['const days3 = days.map(slice3);'], ['const months3 = months.map(slice3);'], ['\tMMM:  months3,\n'], ['\tWWW:  days3,\n'],
  ['if (drag.setScale && hasSelect && chgSelect) {', 'if (false) {'], ['else if (cursor.lock) {', 'else if (false) {'], ['dragY = drag.y && rawDY >= drag.dist;', 'dragY = false;'], ['if (uni != null) {', 'if (false) {'],
  ['else if (drag.x && drag.y && (dragX || dragY))', 'else if (false)'], ['if (dragY) {\n\t\t\t\t\tif (scaleX.ori == 1) {', 'if (false) {\n\t\t\t\t\tif (scaleX.ori == 1) {'],
  ['let angle = axis._rotate * -PI/180;', 'const angle = 0;'], ['axis._rotate = side == 2 ? axis.rotate(self, values, i, _space) : 0;'], ['axis.rotate = fnOrSelf(axis.rotate);'],
  ['if (legend.live) {\n\t\tconst getMultiVals', 'if (false) {\n\t\tconst getMultiVals'], ['assign({}, legendOpts, opts.legend)', '{}'], ['const markers    = legend.markers;', 'const markers = {};'], ['let multiValLegend = false;'], ['multiValLegend = getMultiVals != null;'],
  ['if (legend.live) {\n\t\t\t\tactiveIdxs.fill(idx);', 'if (true) {\n\t\t\t\tactiveIdxs.fill(idx);'],
  ['self.addSeries = addSeries;'], ['self.delSeries = delSeries;'], ['self.setSeries = setSeries;'], ['self.addBand = addBand;'], ['self.setBand = setBand;'], ['self.delBand = delBand;'], ['self.setLegend = setLegend;'],
  ['idx != -1 && setSeries(idx, opts, true, false);'], ['uPlot.assign = assign;'], ['uPlot.fmtNum = fmtNum;'], ['uPlot.rangeNum = rangeNum;'], ['uPlot.rangeLog = rangeLog;'], ['uPlot.orient   = orient;'], ['uPlot.sync = _sync;'],
  ['uPlot.addGap = addGap;'], ['uPlot.clipGaps = clipGaps;'], ['sx.ori == 0', 'true'], ['markers.width  = fnOrSelf(markers.width);'], ['markers.dash   = fnOrSelf(markers.dash);'], ['markers.stroke = fnOrSelf(markers.stroke);'], ['markers.fill   = fnOrSelf(markers.fill);'],
  // WebKitGTK under LANG=C has the language "C", which Intl refuses: nothing of the page would run.
  ["Intl.NumberFormat(domEnv ? nav.language : 'en-US')", "Intl.NumberFormat('en-US')"]];
// What holds wherever it is asked.
const kAlways = [['scaleX.dir * (scaleX.ori == 0 ? 1 : -1)', '1'], ['scaleX.ori == 0', 'true'], ['scaleX.ori == 1', 'false'], ['(!series.spanGaps)', '(false)'], ['xScaleDistr == 2', 'false'], ['sc.distr == 2', 'false'], ['scale.distr == 2', 'false'],
  ['distr == 100', 'false'], ['wsc.from == null', 'true'], ['wsc.from != null', 'false'], ['sc.from == null', 'true'], ['sc.from != null', 'false'], ['scaleOpts.from != null', 'false'], ['axis.label != null', 'false'], ['logBase == 10', 'true'],
  ['base == 10', 'true'], ['base == 2', 'false'], ['(opts.plugins || []).forEach', 'false && [].forEach'], ['(cursor._lock)', '(false)'], ['showLegend', 'false'], ['showCursor', 'true'],
  ['cursorFocus', 'false'], ['cursorOnePt', 'false'], ['multiValLegend', 'false'], ['withProx', 'false']];
const lineChartsOnly = {
  name: 'line-charts-only',
  setup: (b) => b.onLoad({filter: /uPlot\.esm\.js$/}, async ({path: file}) => {
    let contents = await readFile(file, 'utf8');
    for (const [text, instead = ''] of kNotUsed) {
      if (contents.split(text).length !== 2) throw new Error(`${file}: not once: ${text}`);
      contents = contents.replace(text, instead);
    }
    for (const [text, instead] of kAlways) {
      if (!contents.includes(text)) throw new Error(`${file}: nowhere: ${text}`);
      contents = contents.replaceAll(text, instead);
    }
    return {contents, loader: 'js'};
  }),
};

// Of js-yaml the page uses what finds the parts of a text. It is one file whose schemas no bundler can leave out, because they
// are made when it is read; a js-yaml that is not in these parts stops the build.
const kYamlParts = ['src/common/exception.ts', 'src/parser/events.ts', 'src/parser/parser_scalar.ts', 'src/parser/parser.ts'];
const yamlEventsOnly = {
  name: 'yaml-events-only',
  setup: (b) => b.onLoad({filter: /js-yaml\.mjs$/}, async ({path: file}) => {
    const text = await readFile(file, 'utf8');
    const contents = kYamlParts.map((name) => {
      const part = text.split(`//#region ${name}\n`)[1]?.split('//#endregion')[0];
      if (!part) throw new Error(`${file}: no part is called ${name}`);
      // An excerpt of the text around an error, which is beside it on the page.
      return part.replace('mark.snippet = makeSnippet(mark);', '');
    });
    if (contents.join('').includes('makeSnippet')) throw new Error(`${file}: errors have another excerpt`);
    return {contents: `${contents.join('')}export {EVENT_ID, SCALAR_STYLE, getScalarValue, parseEvents};`, loader: 'js'};
  }),
};

const options = {
  absWorkingDir: here,
  entryPoints: {app: 'src/main.tsx'},
  outdir: path.join(outdir, 'assets'),
  bundle: true,
  splitting: true,
  format: 'esm',
  target: 'es2022',
  minify: true,
  jsx: 'transform',
  jsxFactory: '$h',
  jsxFragment: '$Fragment',
  inject: [path.join(here, 'src/jsx.ts')],
  tsconfigRaw: {},
  entryNames: '[name]-[hash]',
  chunkNames: '[name]-[hash]',
  metafile: true,
  logLevel: 'warning',
  plugins: [lineChartsOnly, yamlEventsOnly, {name: 'finish', setup: (b) => b.onEnd((result) => (result.errors.length ? undefined : finish(result)))}],
};

await mkdir(path.join(outdir, 'assets'), {recursive: true});
if (values.watch) {
  await (await context(options)).watch();
} else {
  await build(options);
}
