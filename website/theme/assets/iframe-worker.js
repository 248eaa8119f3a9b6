// The search of the site runs in a worker, and browsers start no worker for a page that was opened from a file.
// There this class takes the worker's place: it runs the same script in a hidden frame of the page.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      this.waiting = [];
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.documentElement.append(frame);
      const inner = frame.contentWindow;
      const load = (url) =>
        new Promise((done, failed) => {
          const script = inner.document.createElement("script");
          script.src = new URL(url, document.baseURI).href;
          script.onload = done;
          script.onerror = failed;
          inner.document.documentElement.append(script);
        });
      inner.__search = window.__search;
      inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      inner.importScripts = (...urls) => urls.reduce((before, url) => before.then(() => load(url)), Promise.resolve());
      this.inner = inner;
      load(address).then(() => {
        const waiting = this.waiting;
        this.waiting = null;
        waiting.forEach((data) => this.postMessage(data));
      });
    }

    postMessage(data) {
      if (this.waiting) this.waiting.push(data);
      else this.inner.dispatchEvent(new this.inner.MessageEvent("message", { data }));
    }

    terminate() {
      this.inner.frameElement.remove();
    }
  };
}
