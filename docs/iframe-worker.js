// A browser starts no Worker for a page that is opened from disk. There the search runs in a hidden frame instead.
if (location.protocol === "file:") {
  const loaded = (frame, url) => new Promise((done, failed) => {
    const script = frame.contentDocument.createElement("script");
    Object.assign(script, { src: url, onload: done, onerror: () => failed(new Error(`cannot read ${url}`)) });
    frame.contentDocument.body.append(script);
  });
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.title = "search";
      document.body.append(frame);
      const inside = frame.contentWindow;
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      inside.importScripts = (...urls) => urls.reduce((before, one) => before.then(() => loaded(frame, one)), Promise.resolve());
      const ready = loaded(frame, url);
      this.postMessage = (data) => ready.then(() => inside.dispatchEvent(new inside.MessageEvent("message", { data })));
    }
  };
}
