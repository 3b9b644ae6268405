"""A faulty network between Redis and its clients."""

import asyncio
import threading

from chaos.injectors import Proxy

_OWN_WITHIN_S = 10


class Network:
    """Context manager: the proxy of chaos runs, in its own thread, for tests that are not asynchronous.

    Every piece of a reply arrives `delay_s` late. `reset` breaks all open connections and counts them. `hold` cuts the
    network for good.
    """

    def __init__(self, server_url):
        self.server_url, self.resets = server_url, 0
        self._proxy = Proxy()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="network", daemon=True)

    @property
    def url(self):
        return self._proxy.url

    @property
    def delay_s(self):
        return self._proxy.reply_delay_s

    @delay_s.setter
    def delay_s(self, delay_s):
        self._proxy.reply_delay_s = delay_s

    def reset(self):
        async def reset():
            return self._proxy.reset()

        self.resets += asyncio.run_coroutine_threadsafe(reset(), self._loop).result(_OWN_WITHIN_S)

    def hold(self):
        """Forward nothing any more, in either direction, as when a cable is cut."""

        async def hold():
            self._proxy.hold()

        asyncio.run_coroutine_threadsafe(hold(), self._loop).result(_OWN_WITHIN_S)

    def __enter__(self):
        self._thread.start()
        opening = self._proxy.open(self.server_url.removeprefix("unix://"))
        asyncio.run_coroutine_threadsafe(opening, self._loop).result(_OWN_WITHIN_S)
        return self

    def __exit__(self, kind, error, at):
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(_OWN_WITHIN_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_OWN_WITHIN_S)
        self._loop.close()

    async def _close(self):
        await self._proxy.restore()
        self._proxy.shut()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
