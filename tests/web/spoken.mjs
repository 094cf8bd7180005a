// What a screen reader is told: Chromium's accessibility tree, which it hands to one.

const kControls = ['button', 'link', 'checkbox', 'combobox', 'textbox', 'searchbox', 'slider', 'spinbutton', 'menuitem', 'option', 'radio', 'switch', 'DisclosureTriangle', 'application', 'log'];
const kNamed = [...kControls, 'figure', 'image', 'img', 'table', 'region', 'navigation', 'dialog', 'progressbar', 'form', 'listbox'];

export class Tree {
  /** Of what the page is now. */
  static async of(page) {
    const session = await page.context().newCDPSession(page);
    const {nodes} = await session.send('Accessibility.getFullAXTree');
    await session.detach();
    return new Tree(nodes);
  }
  constructor(nodes) {
    this.byId = new Map(nodes.map((node) => [node.nodeId, node]));
    this.nodes = nodes.filter((node) => !node.ignored);
  }
  role = (node) => node.role?.value ?? '';
  name = (node) => (node.name?.value ?? '').trim();
  property = (node, name) => node.properties?.find((one) => one.name === name)?.value.value;
  all = (role, within = undefined) => this.nodes.filter((node) => this.role(node) === role && (!within || this.above(node).includes(within)));
  above(node) {
    const out = [];
    for (let at = this.byId.get(node.parentId); at; at = this.byId.get(at.parentId)) out.push(at);
    return out;
  }
  /** All the text below a node, as it is spoken. */
  text(node) {
    if (this.role(node) === 'StaticText') return this.name(node);
    return (node.childIds ?? []).map((id) => this.byId.get(id)).filter(Boolean).map((child) => this.text(child)).join(' ').trim();
  }
  /** What is told by itself when it changes. */
  live = () => this.nodes.filter((node) => ['polite', 'assertive'].includes(this.property(node, 'live')));

  /** Everything on the page that nobody could find their way by. */
  wrong() {
    const wrong = [];
    for (const node of this.nodes) {
      if (kNamed.includes(this.role(node)) && !this.name(node)) wrong.push(`a ${this.role(node)} without a name: ${JSON.stringify(this.text(node).slice(0, 60))}`);
      if (this.role(node) === 'table') {
        if (!this.all('columnheader', node).length) wrong.push(`table "${this.name(node)}" has no column headers`);
        if (!this.all('rowheader', node).length && !this.all('cell', node).length && !this.all('gridcell', node).length) wrong.push(`table "${this.name(node)}" has no cells`);
      }
    }
    for (const figure of this.all('figure')) {
      if (!this.all('button', figure).some((button) => /: table, files and commands$/.test(this.name(button)))) wrong.push(`${this.name(figure)}: no way to its table`);
      if (!/: (\d+ points, last .+ at .+|no values yet)$/.test(this.name(figure))) wrong.push(`${this.name(figure)}: does not say what it shows`);
    }
    for (const role of ['main', 'banner', 'navigation']) if (!this.all(role).length) wrong.push(`no ${role}`);
    const tops = this.all('heading').filter((node) => this.property(node, 'level') === 1);
    if (tops.length !== 1 || !this.name(tops[0])) wrong.push(`${tops.length} headings of level 1`);
    // Two controls of a name that do different things cannot be told apart, but by the table that they sort.
    const buttons = this.all('button').filter((node) => this.above(node).some((one) => this.role(one) === 'main') && !this.above(node).some((one) => this.role(one) === 'columnheader')).map(this.name);
    const twice = buttons.filter((name, i) => buttons.indexOf(name) !== i);
    if (twice.length) wrong.push(`buttons of one name: ${[...new Set(twice)].join(', ')}`);
    if (!this.live().some((node) => this.role(node) === 'status')) wrong.push('nothing tells what happened');
    return wrong;
  }
}
