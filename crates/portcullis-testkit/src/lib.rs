//! A scripted MCP server that can misbehave in every known way.
