"""Serving under load, request by request: engines, replicas and routers on an event clock."""
