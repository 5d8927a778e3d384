// The session's panel in JupyterLab's page: the time that is left, what the job uses, and a word in the status bar.
//
// There is no build step: this is a module-federation container, written by hand, as JupyterLab's loader takes it.
// `panel.py` answers it. What comes from there is shown as text and never as HTML. Nothing that fails here may concern
// the page, so everything that JupyterLab calls is guarded.
(function () {
  'use strict';
  const NAME = 'notebook-launcher';
  const ADDRESS = 'api/notebook-launcher/session';
  const SECONDS = 5; // between two requests, while the page is to be seen
  const PATIENCE = 10; // seconds for an answer
  const LONGEST_PAUSE = 60; // seconds between two requests, where none is answered
  const SAMPLES = 60; // in a graph
  const SOON = 300; // seconds before the end from which the time that is left stands out

  const ICON = '<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24">' +
    '<path class="jp-icon3" fill="#616161" d="M12 3a9 9 0 1 0 9 9 9 9 0 0 0-9-9zm0 16a7 7 0 1 1 7-7 7 7 0 0 1-7 7z' +
    'm1-12h-2v6l4.5 2.7 1-1.6-3.5-2.1z"/></svg>';

  const STYLE = `
    .nbl-panel { background: var(--jp-layout-color1); color: var(--jp-ui-font-color1); overflow: auto; padding: 12px;
      font-size: var(--jp-ui-font-size1); min-width: 180px; }
    .nbl-panel h2 { font-size: var(--jp-ui-font-size2); font-weight: 600; margin: 0 0 8px; }
    .nbl-panel h3 { font-size: var(--jp-ui-font-size1); font-weight: 600; margin: 16px 0 4px; }
    .nbl-panel p { margin: 4px 0; }
    .nbl-left { font-size: var(--jp-ui-font-size3); font-variant-numeric: tabular-nums; }
    .nbl-soon { font-weight: 700; }
    .nbl-panel dl { display: grid; grid-template-columns: max-content 1fr; gap: 2px 12px; margin: 8px 0; }
    .nbl-panel dd { margin: 0; overflow-wrap: anywhere; }
    .nbl-row { display: flex; justify-content: space-between; gap: 8px; font-variant-numeric: tabular-nums; }
    .nbl-panel svg.nbl-graph { display: block; width: 100%; height: 32px; margin: 2px 0 8px;
      border-bottom: 1px solid var(--jp-border-color1); background: var(--jp-layout-color2); }
    .nbl-graph polyline { fill: none; stroke: var(--jp-brand-color1); stroke-width: 1.5;
      vector-effect: non-scaling-stroke; }
    .nbl-status { background: none; border: 0; color: inherit; cursor: pointer; font: inherit; font-size: var(--jp-ui-font-size1); height: 100%;
      padding: 0 4px; font-variant-numeric: tabular-nums; }
    .nbl-status:hover { background: var(--jp-layout-color3); }
    .nbl-status:focus-visible, .nbl-panel :focus-visible { outline: 2px solid var(--jp-brand-color1); outline-offset: -2px; }
  `;

  // --------------------------------------------------------------------------------------------------------- in words

  const two = number => String(number).padStart(2, '0');

  // A time as people read it at a glance: 1:58 h, 42 min, 4:59.
  function duration(seconds) {
    const whole = Math.max(0, Math.floor(seconds));
    if (whole >= 3600) {
      return `${Math.floor(whole / 3600)}:${two(Math.floor((whole % 3600) / 60))} h`;
    }
    return whole >= 600 ? `${Math.floor(whole / 60)} min` : `${Math.floor(whole / 60)}:${two(whole % 60)} min`;
  }

  const gib = mib => (mib >= 10240 ? (mib / 1024).toFixed(0) : (mib / 1024).toFixed(1));
  const known = value => typeof value === 'number' && isFinite(value);
  const clock = seconds => new Date(1000 * seconds).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' });

  function moment(seconds) {
    const date = new Date(1000 * seconds);
    return date.toDateString() === new Date().toDateString() ? `at ${clock(seconds)}`
      : `on ${date.toLocaleDateString([], { weekday: 'long', day: 'numeric', month: 'long' })} at ${clock(seconds)}`;
  }

  function amount(number) {
    return number >= 100 ? number.toFixed(0) : number >= 1 ? number.toFixed(1) : number.toFixed(2);
  }

  // ------------------------------------------------------------------------------------------------- pieces of a page

  function element(tag, attributes, ...children) {
    const made = document.createElement(tag);
    Object.entries(attributes || {}).forEach(([name, value]) => made.setAttribute(name, value));
    made.append(...children);
    return made;
  }

  function setText(node, text) {
    if (node.textContent !== text) {
      node.textContent = text;
    }
  }

  // A name with a value, and its course in the last minutes. The graph says nothing that the words do not say.
  class Graph {
    constructor(parent, label) {
      this.value = element('span');
      this.line = document.createElementNS('http://www.w3.org/2000/svg', 'polyline');
      const graph = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
      graph.setAttribute('viewBox', `0 0 ${SAMPLES - 1} 100`);
      graph.setAttribute('preserveAspectRatio', 'none');
      graph.setAttribute('class', 'nbl-graph');
      graph.setAttribute('aria-hidden', 'true');
      graph.append(this.line);
      this.node = element('div', {}, element('div', { class: 'nbl-row' }, element('span', {}, label), this.value), graph);
      parent.append(this.node);
    }

    // `values`: the newest last, null where nothing is known. `most`: what fills the graph's height.
    show(words, values, most) {
      setText(this.value, words);
      const top = Math.max(most || 0, ...values.filter(known)) || 1;
      const first = SAMPLES - values.length;
      const points = values.map((value, at) => (known(value) ? `${first + at},${(98 - (94 * value) / top).toFixed(1)}` : ''));
      this.line.setAttribute('points', points.filter(Boolean).join(' '));
    }
  }

  // --------------------------------------------------------------------------------------------------- what is known

  // What the server tells, asked for while the page is to be seen, and once more as soon as it is to be seen again.
  class Session {
    constructor(services, settings, changed) {
      this.services = services;
      this.settings = settings;
      this.changed = changed;
      this.facts = null;
      this.samples = [];
      this.skew = 0; // of the server's clock, in seconds
      this.failures = 0;
      this.timer = 0;
      this.asking = false;
      this.over = false;
      document.addEventListener('visibilitychange', () => this.ask());
    }

    get now() {
      return Date.now() / 1000 + this.skew;
    }

    get left() {
      return this.facts && known(this.facts.ends) ? this.facts.ends - this.now : null;
    }

    get cost() {
      const facts = this.facts || {};
      return facts.price && known(facts.began) ? ((this.now - facts.began) / 3600) * facts.price.per_hour : null;
    }

    async ask() {
      clearTimeout(this.timer);
      if (document.hidden || this.asking || this.over) {
        return;
      }
      this.asking = true;
      try {
        await this.request();
        this.failures = 0;
      } catch (problem) {
        this.failures += 1;
      }
      this.asking = false;
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.ask(), 1000 * Math.min(LONGEST_PAUSE, SECONDS * 2 ** Math.min(this.failures, 9)));
      guarded(this.changed);
    }

    async send(init, query) {
      const stop = new AbortController();
      const patience = setTimeout(() => stop.abort(), 1000 * PATIENCE);
      try {
        const { ServerConnection } = this.services;
        const url = this.settings.baseUrl.replace(/\/*$/, '/') + ADDRESS + (query || '');
        const answer = await ServerConnection.makeRequest(url, { ...init, signal: stop.signal }, this.settings);
        if (!answer.ok) {
          throw new Error(`${answer.status}`);
        }
        return answer.status === 204 ? null : await answer.json();
      } finally {
        clearTimeout(patience);
      }
    }

    async request() {
      // The last one again: not all of its rows may have been there.
      const newest = this.samples.length > 1 ? this.samples[this.samples.length - 2].time : 0;
      const facts = await this.send({}, newest ? `?since=${newest}` : '');
      this.skew = facts.now - Date.now() / 1000;
      const more = Array.isArray(facts.samples) ? facts.samples : [];
      this.samples = [...this.samples.filter(sample => sample.time <= newest), ...more].slice(-SAMPLES);
      this.facts = facts;
    }
  }

  // ------------------------------------------------------------------------------------------------- what is to be seen

  class View {
    constructor(openPanel) {
      this.status = element('button', { class: 'nbl-status', type: 'button', title: 'Open the session panel' });
      this.status.addEventListener('click', () => guarded(openPanel));
      this.left = element('p', { class: 'nbl-left' });
      this.details = element('p');
      this.idle = element('p');
      this.list = element('dl');
      this.graphs = element('div');
      this.span = element('h3');
      this.actions = element('div');
      this.parts = {};
      this.node = element('div', { class: 'nbl-panel', role: 'region', 'aria-label': 'Session' },
        element('h2', {}, 'Session'), this.left, this.details, this.idle, this.list,
        this.span, this.graphs, this.actions);
    }

    show(session) {
      const facts = session.facts;
      if (!facts) {
        setText(this.status, 'Session');
        setText(this.left, session.failures ? 'Nothing is known of this session at the moment.' : '');
        return;
      }
      const left = session.left;
      const stale = session.failures ? ' (not reached at the moment)' : '';
      const sample = session.samples[session.samples.length - 1] || { gpus: [] };
      const use = sample.gpus.map(gpu => gpu.percent).filter(known);
      const words = [left === null ? 'Session' : left > 0 ? `${duration(left)} left` : 'time is over'];
      if (use.length) {
        words.push(`GPU ${Math.round(use.reduce((sum, one) => sum + one, 0) / use.length)} %`);
      }
      if (facts.node) {
        words.push(facts.node);
      }
      setText(this.status, words.join(' · '));
      const soon = left !== null && left < SOON;
      this.status.classList.toggle('nbl-soon', soon);
      this.left.classList.toggle('nbl-soon', soon);
      setText(this.left, left === null ? 'No time limit' : left > 0 ? `${duration(left)} left` : 'The time is over');
      setText(this.details, (left === null ? '' : `It ends ${moment(facts.ends)}.`) + stale);
      setText(this.idle, facts.idle ? facts.idle.message || '' : '');
      this.showList(session, facts);
      this.showGraphs(session, facts, sample);
    }

    showList(session, facts) {
      const cost = session.cost;
      const rows = [['Node', facts.node], ['Job', facts.job], ['Partition', facts.partition], ['Session', facts.session],
        ['Cost so far', cost === null ? null : `${amount(cost)} ${facts.price.unit || ''}`.trim()]];
      const shown = rows.filter(([, value]) => value);
      const key = shown.map(([name]) => name).join();
      if (key !== this.key) {
        this.key = key;
        this.list.replaceChildren(...shown.flatMap(([name]) => [element('dt', {}, name), element('dd')]));
      }
      shown.forEach(([, value], at) => setText(this.list.children[2 * at + 1], value));
    }

    showGraphs(session, facts, sample) {
      const samples = session.samples;
      const minutes = samples.length > 1 ? Math.round((sample.time - samples[0].time) / 60) : 0;
      setText(this.span, minutes > 1 ? `In the last ${minutes} minutes` : 'Now');
      this.span.hidden = !samples.length;
      const cores = samples.map(one => one.cores);
      const memory = samples.map(one => one.memory_mib);
      const of = (total, unit) => (known(total) ? ` of ${unit(total)}` : '');
      if (known(sample.cores)) {
        this.graph('cpu', 'CPU').show(`${sample.cores.toFixed(1)}${of(facts.cores, Number)} cores`, cores, facts.cores);
      }
      if (known(sample.memory_mib)) {
        this.graph('memory', 'Memory')
          .show(`${gib(sample.memory_mib)}${of(facts.memory_mib, gib)} GiB`, memory, facts.memory_mib);
      }
      sample.gpus.forEach(gpu => {
        const course = name => samples.map(one => (one.gpus.find(same => same.index === gpu.index) || {})[name]);
        const label = `GPU ${gpu.index}`;
        if (known(gpu.percent)) {
          const graph = this.graph(`use ${gpu.index}`, label);
          graph.node.title = gpu.name || '';
          graph.show(`${Math.round(gpu.percent)} %`, course('percent'), 100);
        }
        if (known(gpu.memory_mib)) {
          this.graph(`memory ${gpu.index}`, `${label} memory`)
            .show(`${gib(gpu.memory_mib)}${of(gpu.total_mib, gib)} GiB`, course('memory_mib'), gpu.total_mib);
        }
      });
    }

    graph(key, label) {
      this.parts[key] = this.parts[key] || new Graph(this.graphs, label);
      return this.parts[key];
    }
  }

  // ------------------------------------------------------------------------------------------------------- in JupyterLab

  function guarded(act) {
    try {
      return act();
    } catch (problem) {
      console.warn(`${NAME}:`, problem);
      return undefined;
    }
  }

  let shared = {}; // packages of the page, by name and version
  // The page's own version: services are known by objects of it.
  async function load(name) {
    const versions = Object.values(shared[name] || {});
    const own = versions.find(version => version.loaded) || versions[0];
    return own ? (await own.get())() : {};
  }

  function activate(packages, app, statusBar) {
    const { Widget, services, icons } = packages;
    document.head.append(element('style', {}, STYLE));
    const view = new View(() => app.shell.activateById(panel.id));
    const panel = new Widget({ node: view.node });
    const session = new Session(services, app.serviceManager.serverSettings, () => view.show(session));
    panel.id = `${NAME}-panel`;
    panel.title.caption = 'Session: time left and use';
    if (icons.LabIcon) {
      panel.title.icon = new icons.LabIcon({ name: `${NAME}:session`, svgstr: ICON });
    } else {
      panel.title.label = 'Session';
    }
    app.shell.add(panel, 'right', { rank: 1000 });
    if (statusBar) {
      const item = new Widget();
      item.node.append(view.status);
      statusBar.registerStatusItem(`${NAME}:session`, { item, align: 'right', rank: 1, isActive: () => true });
    }
    view.show(session);
    app.restored.then(() => session.ask(), () => {});
  }

  async function plugin() {
    const names = ['@jupyterlab/statusbar', '@lumino/widgets', '@jupyterlab/services', '@jupyterlab/ui-components'];
    const [{ IStatusBar }, { Widget }, services, icons] = await Promise.all(names.map(load));
    const packages = { Widget, services, icons };
    return {
      id: `${NAME}:panel`,
      autoStart: true,
      optional: IStatusBar ? [IStatusBar] : [],
      activate: (app, ...found) => guarded(() => activate(packages, app, ...found))
    };
  }

  window._JUPYTERLAB = window._JUPYTERLAB || {};
  window._JUPYTERLAB[NAME] = {
    init: async scope => {
      shared = scope;
    },
    get: async () => {
      let plugins = [];
      try {
        plugins = [await plugin()];
      } catch (problem) {
        console.warn(`${NAME}:`, problem);
      }
      return () => ({ __esModule: true, default: plugins });
    }
  };
})();
