"""The page to try models in the browser: static files, and the routes that only it needs."""

from ramify.serve.page.page_routes import page_router

__all__ = ["page_router"]
