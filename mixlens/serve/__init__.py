"""The local page: texts typed in a browser, one worker that computes, a JSON API. Needs the extra `serve`."""
