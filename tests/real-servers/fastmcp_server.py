"""An MCP server on FastMCP over streamable HTTP, for the end-to-end tests: `fastmcp_server.py PORT stateful|stateless`."""

import sys

from fastmcp import Context, FastMCP

server = FastMCP("fastmcp")


@server.tool
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@server.tool
def fail(why: str) -> str:
    """Always fails."""
    raise ValueError(why)


@server.tool
async def count(to: int, context: Context) -> int:
    """Reports progress while it counts."""
    for at in range(to):
        await context.report_progress(at + 1, to)
    return to


if __name__ == "__main__":
    port, mode = int(sys.argv[1]), sys.argv[2]
    server.run(
        transport="http",
        host="127.0.0.1",
        port=port,
        stateless_http=mode == "stateless",
        show_banner=False,
        log_level="error",
    )
