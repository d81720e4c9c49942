"""The page to try a model in the browser: static files and their routes."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import RedirectResponse


def page_router() -> APIRouter:
    """Routes of the page; none of them is part of the documented API."""
    router = APIRouter(include_in_schema=False)

    @router.get("/")
    async def index() -> RedirectResponse:
        return RedirectResponse("docs")

    return router
