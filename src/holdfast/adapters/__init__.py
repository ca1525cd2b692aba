"""Session layers for other agent frameworks: their sessions are ordinary Holdfast sessions.

Each module needs its framework, which the extra of the same name installs: `pip install 'holdfast[openai-agents]'`.
"""
