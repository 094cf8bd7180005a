// What the bundle leaves out of two packages, which no bundler can. A package that does not read like this, or whose file has
// another name, stops the build: nobody would see on the page that it has grown.
import {readFile} from 'node:fs/promises';

// uPlot hangs its bars, steps, splines and its join on itself, so that no bundler can leave them out; and every chart could
// have dates by template, asinh scales, times in milliseconds, a legend or pairs of x and y. The page draws lines and writes
// its own times and readouts; without the names the functions go.
export const kNotUsed = [['uPlot.join = join;'], ['(paths.stepped = stepped);'], ['(paths.bars    = bars);'], ['(paths.spline  = monotoneCubic);'],
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
export const kAlways = [['scaleX.dir * (scaleX.ori == 0 ? 1 : -1)', '1'], ['scaleX.ori == 0', 'true'], ['scaleX.ori == 1', 'false'], ['(!series.spanGaps)', '(false)'], ['xScaleDistr == 2', 'false'], ['sc.distr == 2', 'false'], ['scale.distr == 2', 'false'],
  ['distr == 100', 'false'], ['wsc.from == null', 'true'], ['wsc.from != null', 'false'], ['sc.from == null', 'true'], ['sc.from != null', 'false'], ['scaleOpts.from != null', 'false'], ['axis.label != null', 'false'], ['logBase == 10', 'true'],
  ['base == 10', 'true'], ['base == 2', 'false'], ['(opts.plugins || []).forEach', 'false && [].forEach'], ['(cursor._lock)', '(false)'], ['showLegend', 'false'], ['showCursor', 'true'],
  ['cursorFocus', 'false'], ['cursorOnePt', 'false'], ['multiValLegend', 'false'], ['withProx', 'false']];
export function lineChartsOnly(contents) {
  for (const [text, instead = ''] of kNotUsed) {
    if (contents.split(text).length !== 2) throw new Error(`not once: ${text}`);
    contents = contents.replace(text, instead);
  }
  for (const [text, instead] of kAlways) {
    if (!contents.includes(text)) throw new Error(`nowhere: ${text}`);
    contents = contents.replaceAll(text, instead);
  }
  return contents;
}

// Of js-yaml the page uses what finds the parts of a text. It is one file whose schemas no bundler can leave out, because they
// are made when it is read.
export const kYamlParts = ['src/common/exception.ts', 'src/parser/events.ts', 'src/parser/parser_scalar.ts', 'src/parser/parser.ts'];
export function yamlEventsOnly(text) {
  const contents = kYamlParts.map((name) => {
    const parts = text.split(`//#region ${name}\n`);
    if (parts.length !== 2 || !parts[1].includes('//#endregion')) throw new Error(`not one part is called ${name}`);
    return parts[1].split('//#endregion')[0];
  }).join('');
  // An excerpt of the text around an error, which is beside it on the page.
  const without = contents.replace('mark.snippet = makeSnippet(mark);', '');
  if (without === contents || without.includes('makeSnippet')) throw new Error('errors have another excerpt');
  return `${without}export {EVENT_ID, SCALAR_STYLE, getScalarValue, parseEvents};`;
}

const cut = (name, filter, change) => ({
  name,
  setup(b) {
    let fired = false;
    b.onLoad({filter}, async ({path}) => {
      fired = true;
      return {contents: change(await readFile(path, 'utf8')), loader: 'js'};
    });
    // Once is enough: with --watch a file that has not changed may not be loaded again.
    b.onEnd(({errors}) => (errors.length || fired ? undefined : {errors: [{text: `nothing was cut: no file is called ${filter}`}]}));
  },
});
export const cuts = [cut('line-charts-only', /uPlot\.esm\.js$/, lineChartsOnly), cut('yaml-events-only', /js-yaml\.mjs$/, yamlEventsOnly)];
