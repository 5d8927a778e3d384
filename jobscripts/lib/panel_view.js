// The view of the session's panel in JupyterLab's page: the item in the status bar, and the panel itself. `panel.py`
// puts this file before `panel_apps.js` and `panel.js`, and wraps all of them in a function.
//
// What comes from the server is shown as text and never as HTML.
const NAME = 'notebook-launcher';
const SAMPLES = 60; // in a graph
const SOON = 300; // seconds before the end from which the time left is highlighted

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
  .nbl-actions { display: flex; flex-direction: column; gap: 8px; margin-top: 16px; }
  .nbl-actions button.jp-mod-styled { height: auto; line-height: 1.4; padding: 6px 12px; }
  .nbl-actions p { overflow-wrap: anywhere; }
  .nbl-status { background: none; border: 0; color: inherit; cursor: pointer; font: inherit; height: 100%;
    font-size: var(--jp-ui-font-size1); padding: 0 4px; font-variant-numeric: tabular-nums; }
  .nbl-status:hover { background: var(--jp-layout-color3); }
  .nbl-status:focus-visible, .nbl-panel :focus-visible { outline: 2px solid var(--jp-brand-color1);
    outline-offset: -2px; }
`;

// --------------------------------------------------------------------------------------------------------- in words

const two = number => String(number).padStart(2, '0');

// A short form of a duration: 1:58 h, 42 min, 4:59 min, 12 s.
function duration(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole >= 3600) {
    return `${Math.floor(whole / 3600)}:${two(Math.floor((whole % 3600) / 60))} h`;
  }
  if (whole < 60) {
    return `${whole} s`;
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

// The teacher's notice to the class, "" if there is none.
function noticeOf(facts) {
  const { message, ends } = facts.notice || {};
  return known(ends) ? `The teacher ends the class ${moment(ends)}: ${message || 'Please save your work.'}` : '';
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

function button(label, act) {
  const made = element('button', { class: 'jp-mod-styled', type: 'button' }, label);
  made.addEventListener('click', () => guarded(act));
  return made;
}

// A name with a value, and a graph of the last minutes. The graph adds nothing that screen readers would need.
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

  // `values`: the newest last, null if unknown. `most`: the value that fills the graph's height.
  show(words, values, most) {
    setText(this.value, words);
    const top = Math.max(most || 0, ...values.filter(known)) || 1;
    const first = SAMPLES - values.length;
    const height = value => (98 - (94 * value) / top).toFixed(1);
    const points = values.map((value, at) => (known(value) ? `${first + at},${height(value)}` : ''));
    this.line.setAttribute('points', points.filter(Boolean).join(' '));
  }
}

// ------------------------------------------------------------------------------------------------- what is to be seen

class View {
  // `acts`: the actions of the buttons: open, keep, renew, end, copy.
  constructor(acts) {
    this.status = element('button', { class: 'nbl-status', type: 'button', title: 'Open the session panel' });
    this.status.addEventListener('click', () => guarded(acts.open));
    this.left = element('p', { class: 'nbl-left' });
    this.details = element('p');
    this.alert = element('p', { role: 'alert' });
    this.notice = element('p', { class: 'nbl-soon' });
    this.idle = element('p');
    this.keep = button('Keep the session', acts.keep);
    this.keep.hidden = true;
    this.renew = button('Continue in a new job…', acts.renew);
    this.next = element('p');
    this.copy = button('Copy the command to come back', acts.copy);
    this.said = element('p', { role: 'status' });
    this.list = element('dl');
    this.graphs = element('div');
    this.span = element('h3');
    // Above the graphs: JupyterLab's notifications cover what is at the bottom.
    this.actions = element('div', { class: 'nbl-actions' }, this.next, this.renew, button('End session…', acts.end), this.copy, this.said,
      element('p', {}, 'Closing this tab does not end the session.'));
    this.parts = {};
    this.node = element('div', { class: 'nbl-panel', role: 'region', 'aria-label': 'Session' },
      element('h2', {}, 'Session'), this.left, this.details, this.alert, this.notice, this.idle, this.keep, this.list,
      this.actions, this.span, this.graphs);
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
    setText(this.notice, noticeOf(facts));
    setText(this.idle, facts.idle ? facts.idle.message || '' : '');
    this.keep.hidden = !facts.idle || facts.idle.why !== 'unused';
    this.copy.hidden = !facts.connect;
    this.renew.hidden = !facts.renew || !!facts.next || !!facts.notice || left === null;
    const from = facts.next && known(facts.next.begins) ? `, ${moment(facts.next.begins)} at the earliest` : '';
    setText(this.next, facts.next ? `This page continues in job ${facts.next.job || ''}${from}.` : '');
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
      const unit = facts.cores === 1 ? 'core' : 'cores';
      this.graph('cpu', 'CPU')
        .show(`${sample.cores.toFixed(1)}${of(facts.cores, Number)} ${unit}`, cores, facts.cores);
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

function guarded(act) {
  try {
    return act();
  } catch (problem) {
    console.warn(`${NAME}:`, problem);
    return undefined;
  }
}
