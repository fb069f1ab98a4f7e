//! The questions put to Cedar: entities and requests that fit the schema.

use std::{
    collections::{HashMap, HashSet},
    sync::LazyLock,
};

use cedar_policy::{
    Context, Entities, Entity, EntityId, EntityTypeName, EntityUid, Request, RestrictedExpression, Schema,
};
use chrono::{DateTime, SecondsFormat};
use portcullis_types::{AgentId, Hash, ServerId, Source, Tier};

use crate::{ServerAction, ServerQuestion, ToolFacts, arguments::Tags, builtin};

/// Why a question could not be put. It denies; the sentence goes into the decision.
pub(crate) type Unfit = String;

/// The schema with its names resolved.
pub(crate) struct Model {
    schema: Schema,
    types: Types,
    /// The entity of a call's arguments.
    arguments: EntityUid,
}

struct Types {
    action: EntityTypeName,
    agent: EntityTypeName,
    args: EntityTypeName,
    profile: EntityTypeName,
    server: EntityTypeName,
    tier: EntityTypeName,
    tool: EntityTypeName,
}

/// The actions of the schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    Call,
    Unattended,
    Elicit,
    ReadResource,
    GetPrompt,
}

impl Action {
    pub(crate) const ALL: [Self; 5] = [
        Self::Call,
        Self::Unattended,
        Self::Elicit,
        Self::ReadResource,
        Self::GetPrompt,
    ];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Unattended => "unattended",
            Self::Elicit => "elicit",
            Self::ReadResource => "readResource",
            Self::GetPrompt => "getPrompt",
        }
    }
}

/// Who asks about what, and the entities around them.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) principal: EntityUid,
    pub(crate) resource: EntityUid,
    pub(crate) entities: Entities,
    /// What must be among the entities: Cedar answers for a missing one as for one without attributes and tags.
    pub(crate) required: Vec<EntityUid>,
}

impl World {
    /// Refuses a world in which an entity is missing: Cedar would go on without it.
    pub(crate) fn check_complete(&self) -> Result<(), Unfit> {
        match self.required.iter().find(|uid| self.entities.get(uid).is_none()) {
            None => Ok(()),
            Some(uid) => Err(missing(uid)),
        }
    }
}

impl Model {
    /// The model of the embedded schema, which is read once.
    pub(crate) fn embedded() -> Result<&'static Self, Unfit> {
        static MODEL: LazyLock<Result<Model, Unfit>> = LazyLock::new(Model::new);
        MODEL.as_ref().map_err(Clone::clone)
    }

    fn new() -> Result<Self, Unfit> {
        let (schema, _) = Schema::from_cedarschema_str(builtin::SCHEMA).map_err(|error| error.to_string())?;
        let named = |name: &str| {
            format!("Mcp::{name}")
                .parse::<EntityTypeName>()
                .map_err(|error| error.to_string())
        };
        let types = Types {
            action: named("Action")?,
            agent: named("Agent")?,
            args: named("Args")?,
            profile: named("Profile")?,
            server: named("Server")?,
            tier: named("Tier")?,
            tool: named("Tool")?,
        };
        Ok(Self {
            arguments: uid(&types.args, "call"),
            schema,
            types,
        })
    }

    pub(crate) fn schema(&self) -> &Schema {
        &self.schema
    }

    pub(crate) fn is_profile(&self, uid: &EntityUid) -> bool {
        *uid.type_name() == self.types.profile
    }

    /// The world of an agent and a tool, without the arguments of a call.
    pub(crate) fn world(&self, agent: &AgentId, profile: &AgentId, tool: &ToolFacts) -> Result<World, Unfit> {
        let (principal, mut entities) = self.agent(agent, profile);
        let (source, server) = (tool.capability.source(), tool.capability.server());
        let parent = self.server(source, server, &tool.transport, &mut entities)?;
        let resource = uid(&self.types.tool, &tool.capability.to_string());
        let parents = HashSet::from([parent.clone()]);
        entities.push(fit(Entity::new(resource.clone(), tool_attrs(tool), parents))?);
        let required = vec![principal.clone(), resource.clone(), parent];
        self.checked(principal, resource, entities, required)
    }

    /// The same with the arguments of a call: `tags` are those that are read, see [`crate::arguments::tags`].
    pub(crate) fn with_arguments(&self, world: &World, tags: Tags) -> Result<World, Unfit> {
        let mut required = world.required.clone();
        required.push(self.arguments.clone());
        Ok(World {
            entities: self.arguments_beside(&world.entities, tags)?,
            required,
            principal: world.principal.clone(),
            resource: world.resource.clone(),
        })
    }

    /// These entities and the arguments of a call, which are checked against the schema.
    pub(crate) fn arguments_beside(&self, entities: &Entities, tags: Tags) -> Result<Entities, Unfit> {
        let tags = tags
            .into_iter()
            .map(|(path, text)| (path, RestrictedExpression::new_string(text)));
        let entity = fit(Entity::new_with_tags(self.arguments.clone(), [], [], tags))?;
        let entities = fit(entities.clone().add_entities([entity], Some(&self.schema)))?;
        match entities.get(&self.arguments) {
            Some(_) => Ok(entities),
            None => Err(missing(&self.arguments)),
        }
    }

    /// The context of a call. What is not read may be left out: something that fits the schema takes its place.
    pub(crate) fn call_context(
        &self,
        tier: Tier,
        hash: Option<&Hash>,
        now_ms: Option<i64>,
    ) -> Result<Context, Unfit> {
        let hash = hash.map(ToString::to_string).unwrap_or_default();
        let pairs = [
            ("tier", self.tier(tier)),
            (
                "args",
                RestrictedExpression::new_entity_uid(self.arguments.clone()),
            ),
            ("argsHash", RestrictedExpression::new_string(hash)),
            (
                "now",
                RestrictedExpression::new_datetime(time(now_ms.unwrap_or_default())?),
            ),
        ];
        fit(Context::from_pairs(
            pairs.map(|(name, value)| (name.to_owned(), value)),
        ))
    }

    /// The request for `action` in `world`, validated.
    pub(crate) fn request(&self, world: &World, action: Action, context: Context) -> Result<Request, Unfit> {
        fit(Request::new(
            world.principal.clone(),
            uid(&self.types.action, action.as_str()),
            world.resource.clone(),
            context,
            Some(&self.schema),
        ))
    }

    /// The world of a question about a whole server, and its context.
    pub(crate) fn server_question(&self, question: &ServerQuestion<'_>) -> Result<(World, Context), Unfit> {
        let ServerQuestion {
            agent,
            profile,
            tier,
            source,
            server,
            transport,
            about,
        } = question;
        let (principal, mut entities) = self.agent(agent, profile);
        let resource = self.server(*source, server, transport, &mut entities)?;
        let required = vec![principal.clone(), resource.clone()];
        let world = self.checked(principal, resource, entities, required)?;
        let mut pairs = vec![("tier".to_owned(), self.tier(*tier))];
        let mut text = |name: &str, text: &str| pairs.push((name.to_owned(), string(text)));
        match about {
            ServerAction::Elicit { mode, host } => {
                text("mode", mode);
                text("host", host);
            }
            ServerAction::ReadResource { uri } => text("uri", uri),
            ServerAction::GetPrompt { name } => text("name", name),
        }
        Ok((world, fit(Context::from_pairs(pairs))?))
    }

    /// The world of these entities, which are checked against the schema.
    fn checked(
        &self,
        principal: EntityUid,
        resource: EntityUid,
        entities: Vec<Entity>,
        required: Vec<EntityUid>,
    ) -> Result<World, Unfit> {
        fit(Entities::from_entities(
            entities.iter().cloned(),
            Some(&self.schema),
        ))?;
        // Kept without the entities of the actions, which have no hierarchy: each call copies what stands here.
        Ok(World {
            principal,
            resource,
            entities: fit(Entities::from_entities(entities, None))?,
            required,
        })
    }

    fn agent(&self, agent: &AgentId, profile: &AgentId) -> (EntityUid, Vec<Entity>) {
        let profile = uid(&self.types.profile, profile.as_str());
        let agent = uid(&self.types.agent, agent.as_str());
        let parents = HashSet::from([profile.clone()]);
        (
            agent.clone(),
            vec![
                Entity::new_no_attrs(profile, HashSet::new()),
                Entity::new_no_attrs(agent, parents),
            ],
        )
    }

    fn server(
        &self,
        source: Source,
        server: &ServerId,
        transport: &str,
        entities: &mut Vec<Entity>,
    ) -> Result<EntityUid, Unfit> {
        let server_uid = uid(&self.types.server, &format!("{}.{server}", source.as_str()));
        let attrs = HashMap::from([
            ("source".to_owned(), string(source.as_str())),
            ("name".to_owned(), string(server.as_str())),
            ("transport".to_owned(), string(transport)),
        ]);
        entities.push(fit(Entity::new(server_uid.clone(), attrs, HashSet::new()))?);
        Ok(server_uid)
    }

    fn tier(&self, tier: Tier) -> RestrictedExpression {
        RestrictedExpression::new_entity_uid(uid(&self.types.tier, tier.as_str()))
    }
}

fn missing(uid: &EntityUid) -> Unfit {
    format!("the entity `{uid}` is missing")
}

fn tool_attrs(tool: &ToolFacts) -> HashMap<String, RestrictedExpression> {
    const FLAGS: [&str; 7] = [
        "readOnly",
        "destructive",
        "idempotent",
        "openWorld",
        "requiresUserInteraction",
        "autoApprove",
        "definitionChanged",
    ];
    let texts = ["source", "server", "name"].into_iter();
    let texts = texts.filter_map(|name| Some((name.to_owned(), string(tool.text(name)?))));
    let flags = FLAGS.into_iter();
    let flags =
        flags.filter_map(|name| Some((name.to_owned(), RestrictedExpression::new_bool(tool.flag(name)?))));
    let cap = ("cap".to_owned(), string(&tool.capability.to_string()));
    texts.chain(flags).chain([cap]).collect()
}

/// Refuses a time that Cedar's notation cannot tell: before year 1 or after year 9999.
pub(crate) fn check_time(now_ms: i64) -> Result<(), Unfit> {
    const YEARS_1_TO_9999: std::ops::RangeInclusive<i64> = -62_135_596_800_000..=253_402_300_799_999;
    if YEARS_1_TO_9999.contains(&now_ms) {
        Ok(())
    } else {
        Err(format!("the time {now_ms} ms is out of range"))
    }
}

fn time(now_ms: i64) -> Result<String, Unfit> {
    check_time(now_ms)?;
    DateTime::from_timestamp_millis(now_ms)
        .map(|time| time.to_rfc3339_opts(SecondsFormat::Millis, true))
        .ok_or_else(|| format!("the time {now_ms} ms is out of range"))
}

fn uid(kind: &EntityTypeName, id: &str) -> EntityUid {
    EntityUid::from_type_name_and_id(kind.clone(), EntityId::new(id))
}

fn string(text: &str) -> RestrictedExpression {
    RestrictedExpression::new_string(text.to_owned())
}

fn fit<T, E: std::fmt::Display>(result: Result<T, E>) -> Result<T, Unfit> {
    result.map_err(|error| error.to_string())
}
