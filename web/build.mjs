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
import {cuts} from './cuts.mjs';

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
  // Arrows are unsafe where somebody makes objects of a function that does not say `this`; nobody does.
  const {code} = await minify(await readFile(file, 'utf8'), {module: true, ecma: 2022, compress: {passes: 4, unsafe_arrows: true}});
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
  plugins: [...cuts, {name: 'finish', setup: (b) => b.onEnd((result) => (result.errors.length ? undefined : finish(result)))}],
};

await mkdir(path.join(outdir, 'assets'), {recursive: true});
if (values.watch) {
  await (await context(options)).watch();
} else {
  await build(options);
}
