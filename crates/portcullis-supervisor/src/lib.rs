//! One supervised actor per MCP server.
