// The session's panel in JupyterLab's page: its data, its warnings before the end, and saving before the end. Its
// appearance is in `panel_view.js`, which `panel.py` puts before this file, wrapping both in a function.
//
// There is no build step: this is a hand-written module-federation container for JupyterLab's loader. `panel.py` is the
// server side. A failure here must not affect the page, so everything that JupyterLab calls is guarded.
const ADDRESS = 'api/notebook-launcher/session';
const SAVE = 'https://notebook-launcher.invalid/save'; // the schema id of the server's event, as in panel_saving.py
const SECONDS = 5; // between two requests, while the page is visible
const PATIENCE = 10; // seconds for an answer
const LONGEST_PAUSE = 60; // seconds between two requests, if none is answered
const WARN_AT = [900, 300, 60]; // seconds before the end, as the terminal does
const LONGER_BY = 4 / 3; // no warning if the requested time is barely longer
const SAVE_FROM = 60; // seconds before the end
const SAVE_UNTIL = 300; // seconds after the end: if the session still runs, its end was a later one
const AGAIN_AFTER = 30; // seconds; each failed attempt opens a dialog of JupyterLab
const QUEUED_WITHIN = 100; // seconds for an attached launcher to queue the next job, while the page is visible
const REQUEST_EVERY = 2; // seconds between two requests meanwhile
const SAVED_WITHIN = 5; // seconds; a document that takes longer counts as not saved
const SAVED_AT_THE_END_WITHIN = 2; // the same when the server waits 2.5 s for the answer

// --------------------------------------------------------------------------------------------- the session's data

// The server's data, requested while the page is visible, and again as soon as it becomes visible.
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
    this.name = '';
    this.moved = () => {}; // called when another session answers at this address, which continues this one
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
    const pause = Math.min(LONGEST_PAUSE, SECONDS * 2 ** Math.min(this.failures, 9));
    this.timer = setTimeout(() => this.ask(), 1000 * pause);
    guarded(this.changed);
  }

  async send(address, init) {
    const stop = new AbortController();
    const patience = setTimeout(() => stop.abort(), 1000 * PATIENCE);
    try {
      const { ServerConnection } = this.services;
      const url = this.settings.baseUrl.replace(/\/*$/, '/') + address;
      const answer = await ServerConnection.makeRequest(url, { ...init, signal: stop.signal }, this.settings);
      if (!answer.ok) {
        throw new Error(`${answer.status}`);
      }
      return answer;
    } finally {
      clearTimeout(patience);
    }
  }

  async request() {
    // Request the last sample again, which may have been incomplete.
    const newest = this.samples.length > 1 ? this.samples[this.samples.length - 2].time : 0;
    const facts = await (await this.send(newest ? `${ADDRESS}?since=${newest}` : ADDRESS, {})).json();
    this.skew = facts.now - Date.now() / 1000;
    const more = Array.isArray(facts.samples) ? facts.samples : [];
    this.samples = [...this.samples.filter(sample => sample.time <= newest), ...more].slice(-SAMPLES);
    this.facts = facts;
    const name = typeof facts.session === 'string' ? facts.session : '';
    if (name && this.name && name !== this.name) {
      this.samples = more.slice(-SAMPLES);
      guarded(() => this.moved(facts));
    }
    this.name = name || this.name;
  }
}

// ----------------------------------------------------------------------------------------- saving before the end

// Saves the open documents, and reports those that could not be saved.
class Saver {
  constructor(shell, documents, report) {
    this.shell = shell;
    this.documents = documents;
    this.report = report;
    this.page = Math.random().toString(36).slice(2);
    this.saving = new Map();
    this.failed = new WeakMap(); // the time of the last failure, by document
    this.reported = '';
  }

  // `asked`: whether somebody waits for the answer. `within`: seconds. Returns the paths of unsaved documents.
  async save(asked, within = SAVED_WITHIN) {
    const unsaved = [];
    await Promise.all(this.unsaved().map(async context => {
      const waits = !asked && Date.now() - (this.failed.get(context) || 0) < 1000 * AGAIN_AFTER;
      const isSaved = !waits && await this.saved(context, within);
      if (!isSaved && !context.model.collaborative) { // the server saves shared documents, and reports failures
        unsaved.push(context.path);
      }
    }));
    const list = JSON.stringify(unsaved.sort());
    if (asked || (list !== this.reported && (unsaved.length || this.reported))) {
      this.reported = list;
      await this.report({ page: this.page, unsaved });
    }
    return unsaved;
  }

  unsaved() {
    const found = new Set();
    ['main', 'down', 'left', 'right'].forEach(area => guarded(() => {
      for (const widget of each(this.shell.widgets(area))) {
        const context = this.documents && this.documents.contextForWidget(widget);
        if (context && context.model.dirty) {
          found.add(context);
        }
      }
    }));
    return [...found];
  }

  // If the file has changed on disk or cannot be written, JupyterLab asks the user, who may never answer.
  saved(context, within) {
    if (!this.saving.has(context)) {
      const saving = context.contentsModel && !context.contentsModel.writable ? Promise.resolve(false)
        : context.save().then(() => true, () => false);
      this.saving.set(context, saving);
      saving.then(isSaved => {
        this.saving.delete(context);
        if (!isSaved) {
          this.failed.set(context, Date.now());
        }
      });
    }
    return Promise.race([this.saving.get(context), new Promise(late => setTimeout(late, 1000 * within, false))]);
  }
}

// JupyterLab 3 has iterators of its own.
function* each(iterator) {
  if (iterator[Symbol.iterator]) {
    yield* iterator;
    return;
  }
  for (let one = iterator.next(); one !== undefined; one = iterator.next()) {
    yield one;
  }
}

// ------------------------------------------------------------------------------------------------------- warnings

// JupyterLab's notifications, which screen readers announce; versions without them show the text in the panel.
class Warnings {
  constructor(notification, sayInPanel, keep) {
    this.notification = notification;
    this.sayInPanel = sayInPanel;
    this.keep = keep;
    this.given = new Set();
    this.shown = {};
    this.idle = '';
    this.notice = '';
  }

  show(session) {
    const { facts, left } = session;
    if (!facts) {
      return;
    }
    this.showNotice(facts, left);
    if (left !== null && left > 0) {
      this.warnOfTheEnd(facts, left);
    }
    const idle = facts.idle && facts.idle.message ? `${facts.idle.message} ${facts.idle.ends}` : '';
    if (idle !== this.idle) {
      this.idle = idle;
      // No "Keep it" for an unused GPU, which can be kept only by using it.
      const keep = { label: 'Keep it', callback: () => guarded(this.keep) };
      this.say('idle', idle && facts.idle.message, idle && facts.idle.why === 'unused' ? [keep] : []);
    }
  }

  // The notice of a teacher who ends the class. It contains the time, so a warning at the same time is redundant.
  showNotice(facts, left) {
    const notice = noticeOf(facts);
    if (notice !== this.notice) {
      WARN_AT.filter(before => notice && left <= before).forEach(before => this.given.add(before));
      this.notice = notice;
      this.say('notice', notice);
    }
  }

  warnOfTheEnd(facts, left) {
    const whole = facts.ends - facts.began;
    if (left > WARN_AT[0]) {
      this.given.clear(); // the end was postponed
      this.say('end', '');
    }
    const due = WARN_AT.filter(before => left <= before && whole >= before * LONGER_BY);
    if (due.every(before => this.given.has(before))) {
      return;
    }
    due.forEach(before => this.given.add(before));
    const minutes = Math.max(1, Math.round(left / 60));
    const what = left <= SAVE_FROM ? 'Open documents are being saved.'
      : 'Open documents are saved in the last minute; what kernels have in memory is lost.';
    const inWords = `${minutes} ${minutes === 1 ? 'minute' : 'minutes'} left`;
    const next = facts.next && facts.next.job ? ` This page continues in job ${facts.next.job} then.` : '';
    this.say('end', `${inWords}: the session ends ${moment(facts.ends)}.${next} ${what}`);
  }

  // Show one notification of each kind at a time; without a text, none.
  say(kind, text, actions) {
    if (!this.notification) {
      this.sayInPanel(text || '');
      return;
    }
    const shown = this.shown[kind] || {};
    if (text === (shown.text || '')) {
      return;
    }
    if (shown.id) {
      this.notification.dismiss(shown.id);
    }
    const id = text ? this.notification.warning(text, { autoClose: false, actions: actions || [] }) : '';
    this.shown[kind] = { id, text };
  }
}

// ------------------------------------------------------------------------------------------------------- in JupyterLab

let shared = {}; // packages of the page, by name and version
// Load the page's own version of a package: its services are identified by objects of that package.
async function load(name) {
  const versions = Object.values(shared[name] || {});
  const own = versions.find(version => version.loaded) || versions[0];
  return own ? (await own.get())() : {};
}

function activate(packages, app, documents, statusBar, launcher) {
  const { Widget, services, icons, notification } = packages;
  document.head.append(element('style', {}, STYLE));
  const open = () => app.shell.activateById(panel.id);
  const post = words => session.send(ADDRESS, { method: 'POST', body: JSON.stringify(words) });
  const keep = () => post({ keep: true }).then(() => session.ask(), () => {});
  const end = () => endSession(app, packages, session, saver)
    .catch(problem => setText(view.said, `The session could not be ended: ${problem.message}`));
  const copy = () => {
    const command = session.facts.connect;
    const say = text => setText(view.said, text);
    return navigator.clipboard.writeText(command).then(() => say(`Copied: ${command}`), () => say(command));
  };
  const renew = () => renewSession(packages, session, post, text => setText(view.said, text))
    .catch(problem => setText(view.said, `The next job could not be requested: ${problem.message}`));
  const view = new View({ open, keep, renew, end, copy });
  const warnings = new Warnings(notification, text => {
    setText(view.alert, text);
    if (text) {
      open();
    }
  }, keep);
  const cards = new Cards(app, launcher, warnings, icons, address => session.send(address, {}));
  const saver = new Saver(app.shell, documents, post);
  const panel = new Widget({ node: view.node });
  const session = new Session(services, app.serviceManager.serverSettings, () => {
    view.show(session);
    warnings.show(session);
    cards.show(session);
    if (session.left !== null && session.left <= SAVE_FROM && session.left > -SAVE_UNTIL) {
      saver.save(false).catch(() => {});
    }
  });
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
  const { events } = app.serviceManager; // older versions have no events, nor has their server
  if (events && events.stream) {
    events.stream.connect((_, event) => guarded(() => saveAsAsked(event, saver, warnings)));
  }
  session.moved = facts => goOn(facts, saver, warnings);
  view.show(session);
  app.restored.then(() => session.ask(), () => {});
  app.restored.then(() => guarded(() => sayWhereItGoesOn(warnings)), () => {});
}

// Confirm once, with the price; then the attached launcher queues the next job, and records that in the session's
// files.
async function renewSession(packages, session, post, say) {
  const { Dialog, showDialog } = packages;
  const { facts } = session;
  const whole = known(facts.walltime) ? facts.walltime : null; // a class may end this session earlier
  const price = facts.price && whole !== null
    ? `, for at most ${`${amount((whole / 3600) * facts.price.per_hour)} ${facts.price.unit || ''}`.trim()}` : '';
  const words = [`The same request is queued again${whole === null ? '' : `: ${duration(whole)}`}${price}.`,
    'The new job begins shortly before this one ends, or as soon as the cluster has room. This page continues there,',
    'at the same address. Kernels are new: all variables are lost.'];
  const answer = await showDialog({
    title: 'Continue in a new job?',
    body: words.join(' '),
    buttons: [Dialog.cancelButton({ label: 'Cancel' }), Dialog.okButton({ label: 'Queue it' })]
  });
  if (!answer.button.accept) {
    return;
  }
  await post({ renew: true });
  say('The next job is being queued.');
  for (let waited = 0; waited < QUEUED_WITHIN;) {
    await new Promise(later => setTimeout(later, 1000 * REQUEST_EVERY));
    if (document.hidden) {
      continue; // a hidden page requests nothing
    }
    waited += REQUEST_EVERY;
    await session.ask();
    if (session.facts.next) {
      say('');
      return;
    }
  }
  say('No launch-notebook has answered yet: none is attached to this session, it is slow, or the cluster refused the '
    + `job. To queue the next job, type in a terminal: ${facts.renew}`);
}

// The documents are still open, but their kernels are gone. Reload the page once nothing can be lost by that.
async function goOn(facts, saver, warnings) {
  const unsaved = await saver.save(true).catch(() => ['?']);
  if (unsaved.length) {
    const what = 'Save your documents, and reload the page: its kernels are gone.';
    warnings.say('next', `The session continues in job ${facts.job}. ${what}`);
    return;
  }
  sessionStorage.setItem(NAME, `${facts.job}`);
  location.reload();
}

function sayWhereItGoesOn(warnings) {
  const job = sessionStorage.getItem(NAME);
  sessionStorage.removeItem(NAME);
  if (job) {
    warnings.say('next', `The session continues in job ${job}. Its kernels are new: run your cells again.`);
  }
}

// Confirm once, naming what would be lost; then shut down the server, and with it the job.
async function endSession(app, packages, session, saver) {
  const { Dialog, showDialog } = packages;
  const unsaved = await saver.save(true);
  const busy = [...each(app.serviceManager.sessions.running())]
    .filter(one => one.kernel && one.kernel.execution_state === 'busy').map(one => one.name || one.path);
  const words = ['Its job ends, and what kernels have in memory is lost.',
    unsaved.length ? `Not saved: ${unsaved.join(', ')}.` : 'Open documents are saved.',
    busy.length ? `Still running: ${busy.join(', ')}.` : ''];
  const answer = await showDialog({
    title: 'End this session?',
    body: words.filter(Boolean).join(' '),
    buttons: [Dialog.cancelButton({ label: 'Cancel' }), Dialog.warnButton({ label: 'End session' })],
    defaultButton: 0
  });
  if (answer.button.accept) {
    await session.request().catch(() => {}); // to show the cost so far
    const bill = billOf(session);
    await session.send('api/shutdown', { method: 'POST' });
    session.over = true;
    showDialog({ title: 'The session has ended', body: bill.join(' '), buttons: [] });
  }
}

// The usage in sentences; the terminal shows the complete report.
function billOf(session) {
  const { facts, cost } = session;
  const words = [];
  if (facts && known(facts.began)) {
    const whole = known(facts.ends) ? ` of ${duration(facts.ends - facts.began)}` : '';
    words.push(`It ran for ${duration(session.now - facts.began)}${whole}.`);
  }
  if (cost !== null) {
    words.push(`It cost ${`${amount(cost)} ${facts.price.unit || ''}`.trim()}.`);
  }
  return facts && facts.bill ? [...words, `The usage report is in the terminal, or by: ${facts.bill}`] : words;
}

// The server sends this event in the last minute, also to hidden pages; when its job is being ended; and when a user is
// about to end the session in a terminal, which waits for the answer.
function saveAsAsked(event, saver, warnings) {
  if (event.schema_id !== SAVE) {
    return;
  }
  const asked = event.last || event.asked === true;
  saver.save(asked, asked ? SAVED_AT_THE_END_WITHIN : SAVED_WITHIN).then(unsaved => {
    if (!event.last) {
      warnings.say('unsaved', unsaved.length ? `Not saved: ${unsaved.join(', ')}` : '');
    }
    if (event.last) {
      const words = unsaved.length ? ` Not saved: ${unsaved.join(', ')}.` : ' Open documents were saved.';
      // The package for notifications may not be loaded yet, and can no longer be.
      const why = 'its time is over, or its job was cancelled or preempted.';
      warnings.sayInPanel(`The session is being ended: ${why}${words}`);
    }
  }, () => {});
}

async function plugin() {
  const names = ['docmanager', 'statusbar', 'launcher', 'services', 'ui-components', 'apputils'];
  const [{ Widget }, { IDocumentManager }, { IStatusBar }, { ILauncher }, services, icons, apputils] =
    await Promise.all(['@lumino/widgets', ...names.map(name => `@jupyterlab/${name}`)].map(load));
  const { Notification, showDialog, Dialog } = apputils;
  const packages = { Widget, services, icons, notification: Notification, showDialog, Dialog };
  const tokens = [IDocumentManager, IStatusBar, ILauncher];
  return {
    id: `${NAME}:panel`,
    autoStart: true,
    optional: tokens.filter(Boolean),
    activate: (app, ...found) => guarded(() => activate(packages, app, ...tokens.map(token => token && found.shift())))
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
