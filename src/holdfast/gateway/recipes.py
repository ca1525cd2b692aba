"""How a person sets up each platform: the steps on the platform's side, the settings to ask for, and every known setting."""

from collections.abc import Mapping

import msgspec

SHARED = (
    *("kind", "allow", "owners", "pairing", "groups", "stream", "tell_queued", "max_attachment_mb", "on_unknown"),
    *("workdir", "terminal", "approvers", "chat_approvers", "trusted_hosts"),
)
"""The settings that every platform has."""
REPLACEMENTS = {
    "password": ("token", "imap_password", "smtp_password"),
    "authserv": ("accept_unauthenticated_senders",),
}
"""Settings that may be missing if one of these is set."""


class RecipeField(msgspec.Struct, frozen=True):
    """A setting to ask for. An optional one may be left empty."""

    name: str
    question: str
    secret: bool = False
    optional: bool = False


class PlatformRecipe(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    title: str
    steps: tuple[str, ...]
    """What to do on the platform first."""
    fields: tuple[RecipeField, ...]
    greet: str
    """How the person writes to the agent for the first time."""
    further: tuple[str, ...] = ()
    """Settings that are not asked for."""

    @property
    def settings(self) -> frozenset[str]:
        return frozenset((*SHARED, *self.further, *(field.name for field in self.fields)))


TELEGRAM = PlatformRecipe(
    kind="telegram",
    title="Telegram",
    steps=(
        "In Telegram, open a chat with @BotFather and send /newbot.",
        "Choose a name, and a user name that ends in 'bot'. BotFather answers with a token such as 123456:ABC-DEF.",
        "To use the bot in groups: send /setprivacy to BotFather, choose the bot, then Disable. Otherwise it sees only "
        "commands and replies to its own messages.",
    ),
    fields=(RecipeField("token", "The bot's token", secret=True),),
    greet="In Telegram, open the chat with your bot, press Start, and send it any message.",
    further=("api_url", "webhook_url", "webhook_secret", "listen"),
)
MATRIX = PlatformRecipe(
    kind="matrix",
    title="Matrix",
    steps=(
        "Register an account for the bot on your homeserver. If you use Element for that, verify Holdfast's device there "
        "afterwards, or other clients warn about it.",
        "Find the address of the homeserver's API, for example https://matrix.example.org.",
    ),
    fields=(
        RecipeField("homeserver", "The homeserver's URL"),
        RecipeField("user", "The bot's user id, such as @holdfast:example.org"),
        RecipeField("password", "The bot's password", secret=True),
    ),
    greet="In Matrix, start a direct chat with the bot's user id and send it any message.",
    further=("token", "encryption", "trusted_devices"),
)
SLACK = PlatformRecipe(
    kind="slack",
    title="Slack",
    steps=(
        "On https://api.slack.com/apps choose Create New App, From scratch.",
        "Socket Mode: enable it, and create an app-level token with the scope connections:write (xapp-…).",
        "OAuth & Permissions: add the bot scopes app_mentions:read, channels:history, chat:write, files:read, "
        "files:write, groups:history, im:history and mpim:history.",
        "Event Subscriptions: enable them, and subscribe to the bot events app_mention, message.channels, "
        "message.groups, message.im and message.mpim.",
        "App Home: under Show Tabs, allow messages from the Messages tab.",
        "Install App: install it to your workspace and copy the Bot User OAuth Token (xoxb-…).",
    ),
    fields=(
        RecipeField("bot_token", "The bot token (xoxb-…)", secret=True),
        RecipeField("app_token", "The app-level token (xapp-…)", secret=True),
    ),
    greet="In Slack, open the app under Apps, choose the tab Messages, and send it any message.",
    further=("api_url", "ping_seconds"),
)
DISCORD = PlatformRecipe(
    kind="discord",
    title="Discord",
    steps=(
        "On https://discord.com/developers/applications choose New Application.",
        "Bot: choose Reset Token and copy the token. Under Privileged Gateway Intents, enable Message Content Intent.",
        "OAuth2, URL Generator: choose the scope bot and the permissions View Channels, Send Messages, Attach Files and "
        "Read Message History. Open the URL and add the bot to a server.",
    ),
    fields=(RecipeField("token", "The bot's token", secret=True),),
    greet="In Discord, send the bot a direct message, or mention it in a channel.",
    further=("api_url", "gateway_url"),
)
EMAIL = PlatformRecipe(
    kind="email",
    title="E-mail",
    steps=(
        "Create a mailbox for the agent, with IMAP and SMTP. Many providers need an app password for them.",
        "Send a message to the mailbox and look at its source: the name that begins the topmost "
        "Authentication-Results header, before the semicolon, is the one to enter below.",
    ),
    fields=(
        RecipeField("address", "The agent's address"),
        RecipeField("password", "The password of the mailbox", secret=True),
        RecipeField("imap_host", "The IMAP server"),
        RecipeField("smtp_host", "The SMTP server"),
        RecipeField("authserv", "The name in Authentication-Results"),
    ),
    greet="Send an e-mail to the agent's address.",
    further=(
        *("imap_port", "imap_security", "imap_user", "imap_password", "folder", "accept_unauthenticated_senders"),
        *("smtp_port", "smtp_security", "smtp_user", "smtp_password"),
    ),
)
DINGTALK = PlatformRecipe(
    kind="dingtalk",
    title="DingTalk",
    steps=("In DingTalk's developer console, create an app, add a robot to it, and choose stream mode.",),
    fields=(
        RecipeField("client_id", "The client id (AppKey)"),
        RecipeField("client_secret", "The client secret (AppSecret)", secret=True),
    ),
    greet="In DingTalk, send the robot any message.",
    further=("open_url",),
)
QQ = PlatformRecipe(
    kind="qq",
    title="QQ",
    steps=("On QQ's open platform, create a bot.",),
    fields=(RecipeField("app_id", "The app id"), RecipeField("secret", "The app secret", secret=True)),
    greet="In QQ, send the bot any message.",
    further=("api_url", "token_url", "sandbox"),
)
WEBHOOK = PlatformRecipe(
    kind="webhook",
    title="Webhook",
    steps=("Write a bridge for your platform; docs/bridge.md describes its protocol.",),
    fields=(
        RecipeField("listen", "The address that the bridge calls (HOST:PORT)"),
        RecipeField("url", "The URL of the bridge"),
        RecipeField("secret", "The secret that Holdfast and the bridge share", secret=True),
    ),
    greet="Let the bridge deliver a message.",
    further=("max_text", "keyed", "edits", "typing"),
)
RECIPES = {one.kind: one for one in (TELEGRAM, MATRIX, SLACK, DISCORD, EMAIL, DINGTALK, QQ, WEBHOOK)}


def find_problems(name: str, table: Mapping[str, object]) -> list[str]:
    """What keeps a configured platform from starting, as far as its settings show it."""
    kind = str(table.get("kind", name))
    recipe = RECIPES.get(kind)
    if recipe is None:
        return [f"[gateway.{name}] unknown platform {kind!r}; known: {', '.join(RECIPES)}"]
    unknown = [key for key in table if key not in recipe.settings]
    missing = [field.name for field in recipe.fields if not is_given(field.name, table)]
    return [
        *(
            f"[gateway.{name}] unknown setting {key}; known settings: {', '.join(sorted(recipe.settings))}"
            for key in unknown
        ),
        *(f"[gateway.{name}] needs {key}" for key in missing),
    ]


def is_given(name: str, table: Mapping[str, object]) -> bool:
    """Whether a setting or one that stands for it is there."""
    return any(one in table for one in (name, *REPLACEMENTS.get(name, ())))
