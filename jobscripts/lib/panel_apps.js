// The panel's cards in JupyterLab's Launcher for programs beside it (--app). panel.py joins this file with the others.

const ICONS = 'api/notebook-launcher/app-icons';
// A picture comes from the author of the profile or course. It is used only as the URL of an image, so no code in it
// runs.
const PICTURE = /^data:image\/(svg\+xml|png);base64,[A-Za-z0-9+/]{1,32000}={0,2}$/;
// names in a profile, and the corresponding JupyterLab icons
const OWN_ICONS = {
  code: 'codeIcon', console: 'consoleIcon', image: 'imageIcon', list: 'listIcon', notebook: 'notebookIcon',
  table: 'spreadsheetIcon', text: 'textEditorIcon'
};
const CHART = '<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24">' +
  '<path class="jp-icon3" fill="#616161" d="M3 3h2v16h16v2H3zm4 10.6 4-4 3 3L20.6 6 22 7.4l-8 8-3-3-2.6 2.6z"/></svg>';

// A card in JupyterLab's Launcher for each program whose port has been forwarded; and a notification if one fails.
class Cards {
  constructor(app, launcher, warnings, icons, get) {
    this.app = app;
    this.launcher = launcher;
    this.warnings = warnings;
    this.icons = icons;
    this.get = get;
    this.urls = {};
    this.failed = new Set();
    this.pictures = 0;
  }

  show(session) {
    for (const one of (session.facts && session.facts.apps) || []) {
      const isNews = one.state === 'failed' && !this.failed.has(one.name);
      if (isNews) {
        this.failed.add(one.name);
        this.warnings.say(`app-${one.name}`, `${one.title} is not running. ${one.message}`);
      }
      const isNew = one.url && !this.urls[one.name];
      this.urls[one.name] = one.url || this.urls[one.name];
      if (isNew) {
        this.add(one).catch(() => {});
      }
    }
  }

  async add(one) {
    const command = `${NAME}:app-${one.name}`;
    const iconClass = one.icon === 'file' ? await this.picture(one.name).catch(() => '') : '';
    this.app.commands.addCommand(command, {
      label: one.title,
      caption: `Open ${one.title}, which runs in this session`,
      icon: iconClass ? undefined : this.icon(one.icon),
      iconClass,
      execute: () => { window.open(this.urls[one.name], '_blank', 'noopener,noreferrer'); }
    });
    if (this.launcher) {
      this.launcher.add({ command, category: 'Other', rank: 0 });
    }
  }

  icon(name) {
    const { LabIcon } = this.icons;
    if (name === 'chart' && LabIcon) {
      return new LabIcon({ name: `${NAME}:chart`, svgstr: CHART });
    }
    return this.icons[Object.prototype.hasOwnProperty.call(OWN_ICONS, name) ? OWN_ICONS[name] : 'launcherIcon'];
  }

  // The CSS class of an element with a program's own picture; empty if it has none. Pictures are requested once.
  async picture(name) {
    this.all = this.all || this.get(ICONS).then(answer => answer.json());
    const { icons } = await this.all;
    if (!PICTURE.test(icons[name])) {
      return '';
    }
    this.pictures += 1;
    const own = `nbl-app-icon-${this.pictures}`;
    const how = `background: center / contain no-repeat url("${icons[name]}")`;
    document.head.append(element('style', {}, `.${own} { ${how} } .jp-LauncherCard-icon .${own} { width: 52px; height: 52px }`));
    return own;
  }
}
